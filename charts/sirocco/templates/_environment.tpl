{{/* What a process is told: the cluster's settings, what is secret, and where it is itself. */}}
{{- define "sirocco.environment" -}}
- name: SIROCCO_REDIS
  {{- if .Values.redis.existingSecret.name }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.existingSecret.name }}
      key: {{ .Values.redis.existingSecret.key }}
  {{- else }}
  value: {{ .Values.redis.url | quote }}
  {{- end }}
{{- if hasPrefix "sasl" .Values.kafka.security }}
{{- with .Values.kafka.sasl.existingSecret }}
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
# The address that other processes are given.
- name: SIROCCO_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
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
