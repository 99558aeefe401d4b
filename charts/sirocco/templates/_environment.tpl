{{/* The environment of a process: the cluster's settings, what is secret, and where it is itself. */}}
{{- define "sirocco.environment" -}}
- name: SIROCCO_REDIS
  {{- if include "sirocco.hasRedis" . }}
  value: {{ include "sirocco.redis" . | quote }}
  {{- else if .Values.redis.existingSecret.name }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.existingSecret.name }}
      key: {{ .Values.redis.existingSecret.key }}
  {{- else }}
  value: {{ .Values.redis.url | quote }}
  {{- end }}
{{ include "sirocco.kafkaCredentials" . }}
# The address that other processes are given.
- name: SIROCCO_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
# What members are called in `sirocco cluster`.
- name: SIROCCO_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: SIROCCO_KERNEL_CACHE
  value: /var/cache/sirocco
{{- end -}}

{{- define "sirocco.environmentFrom" -}}
- configMapRef:
    name: {{ include "sirocco.fullname" . }}
{{- if .Values.archive.existingSecret }}
- secretRef:
    name: {{ .Values.archive.existingSecret }}
{{- end }}
{{- end -}}

{{/* Who the process is to Kafka: for services, and for jobs that read topics. */}}
{{- define "sirocco.kafkaCredentials" -}}
{{- if hasPrefix "sasl" .Values.kafka.security -}}
{{- with .Values.kafka.sasl.existingSecret -}}
- name: SIROCCO_KAFKA_SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .usernameKey }}
- name: SIROCCO_KAFKA_SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .passwordKey }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Mounts and volumes of the archive and of what TLS needs; the two go together. */}}
{{- define "sirocco.mounts" -}}
{{- if include "sirocco.archiveClaim" . }}
- name: archive
  mountPath: /archive
{{- end }}
{{- range $name := list "kafka" "redis" }}
{{- if (index $.Values $name).tls.existingSecret.name }}
- name: {{ $name }}-tls
  mountPath: /etc/sirocco/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "sirocco.volumes" -}}
{{- with include "sirocco.archiveClaim" . }}
- name: archive
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- range $name := list "kafka" "redis" }}
{{- with (index $.Values $name).tls.existingSecret.name }}
- name: {{ $name }}-tls
  secret:
    secretName: {{ . }}
    # For the group of the pod's processes.
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end -}}
