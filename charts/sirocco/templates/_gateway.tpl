{{/* The environment of a gateway: where routers are, and its own limits. It knows no Kafka and no Redis. */}}
{{- define "sirocco.gatewayEnvironment" -}}
{{- $gateway := .Values.gateway -}}
- name: SIROCCO_ROUTER
  value: {{ printf "%s-router:%d" (include "sirocco.fullname" .) (int .Values.grpcPort) | quote }}
- name: SIROCCO_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: SIROCCO_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: SIROCCO_KERNEL_CACHE
  value: /var/cache/sirocco
- name: SIROCCO_HTTP_PORT
  value: {{ .Values.httpPort | quote }}
- name: SIROCCO_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
{{- with .Values.security.tls }}
{{- if .existingSecret.name }}
- name: SIROCCO_TLS_CA
  value: /etc/sirocco/ca/ca.crt
- name: SIROCCO_TLS_NAME
  value: {{ .name | quote }}
{{- end }}
{{- end }}
- name: SIROCCO_GATEWAY_PORT
  value: {{ $gateway.port | quote }}
{{- with $gateway.origins }}
- name: SIROCCO_GATEWAY_ORIGINS
  value: {{ join "," . | quote }}
{{- end }}
- name: SIROCCO_GATEWAY_CONNECTIONS
  value: {{ $gateway.limits.connections | int64 | quote }}
- name: SIROCCO_GATEWAY_BODY
  value: {{ $gateway.limits.body | int64 | quote }}
- name: SIROCCO_GATEWAY_MEMORY
  value: {{ $gateway.limits.memory | int64 | quote }}
- name: SIROCCO_GATEWAY_TENANT_MEMORY
  value: {{ $gateway.limits.tenantMemory | int64 | quote }}
- name: SIROCCO_GATEWAY_STREAMS
  value: {{ $gateway.limits.streams | int64 | quote }}
- name: SIROCCO_GATEWAY_TENANT_STREAMS
  value: {{ $gateway.limits.tenantStreams | int64 | quote }}
- name: SIROCCO_UNREAD_TIMEOUT
  value: {{ .Values.cluster.merger.unreadTimeout | quote }}
{{- end -}}
