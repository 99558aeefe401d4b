{{/* Whether something else than this chart counts the pods; called with a service's values. */}}
{{- define "sirocco.scaled" -}}
{{- if and .autoscaling (ne .autoscaling.kind "none") }}yes{{ end -}}
{{- end -}}

{{/*
What sets the number of pods; called with root, service, values, and topics (a regular expression).
It counts pods only: which pod owns what is the coordinator's business.
*/}}
{{- define "sirocco.scaler" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "sirocco.fullname" $root) .service -}}
{{- $behaviour := dict
  "scaleDown" (dict
    "stabilizationWindowSeconds" (int $root.Values.autoscaling.scaleDownSeconds)
    "policies" (list (dict "type" "Pods" "value" 1 "periodSeconds" 60)))
  "scaleUp" (dict
    "stabilizationWindowSeconds" (int $root.Values.autoscaling.scaleUpSeconds)
    "policies" (list (dict "type" "Percent" "value" 50 "periodSeconds" 60) (dict "type" "Pods" "value" 2 "periodSeconds" 60))
    "selectPolicy" "Max") -}}
{{- if eq .values.autoscaling.kind "hpa" }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .service }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name }}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .values.autoscaling.cpuPercent }}
  behavior:
    {{- toYaml $behaviour | nindent 4 }}
{{- else if eq .values.autoscaling.kind "keda" }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ $name }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .service }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name }}
  minReplicaCount: {{ .values.autoscaling.minReplicas }}
  maxReplicaCount: {{ .values.autoscaling.maxReplicas }}
  pollingInterval: {{ $root.Values.autoscaling.keda.pollingInterval }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml $behaviour | nindent 8 }}
  triggers:
    - type: cpu
      metricType: Utilization
      metadata:
        value: {{ .values.autoscaling.cpuPercent | quote }}
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ $root.Values.autoscaling.keda.prometheus | quote }}
        # No data is an error: then nothing is taken away, and the CPU alone adds.
        ignoreNullValues: "false"
        threshold: {{ $root.Values.autoscaling.keda.lagRecords | quote }}
        query: sum(sirocco_process_lag_records{namespace="{{ $root.Release.Namespace }}",pod=~"{{ $name }}-.+",topic=~"{{ .topics }}"})
{{- end }}
{{- end -}}
