{{/* The environment of a connector. It knows routers alone; its sources and sinks are in a file. */}}
{{- define "sirocco.connectorEnvironment" -}}
- name: SIROCCO_CONNECTOR_CONFIG
  value: /etc/sirocco/connector/connector.yaml
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
- name: SIROCCO_AUDIT
  value: {{ .Values.audit | quote }}
{{- end -}}

{{/* The configuration: that of the values, and how this release is reached. */}}
{{- define "sirocco.connectorConfig" -}}
{{- $own := dict "router" (printf "%s-router:%d" (include "sirocco.fullname" .) (int .Values.grpcPort)) -}}
{{- with .Values.security.tls }}
{{- if .existingSecret.name }}
{{- $_ := set $own "tls" (dict "ca" "/etc/sirocco/ca/ca.crt" "server_name" .name) -}}
{{- end }}
{{- end }}
{{- if .Values.connector.tokenSecret.name }}
{{- $_ := set $own "token_file" "/etc/sirocco/token/token" -}}
{{- end }}
{{- toYaml (merge $own .Values.connector.config) -}}
{{- end -}}

{{- define "sirocco.connectorMounts" -}}
- name: connector
  mountPath: /etc/sirocco/connector
  readOnly: true
{{- if .Values.connector.tokenSecret.name }}
- name: token
  mountPath: /etc/sirocco/token
  readOnly: true
{{- end }}
{{- with .Values.connector.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sirocco.connectorVolumes" -}}
- name: connector
  configMap:
    name: {{ include "sirocco.fullname" . }}-connector
{{- with .Values.connector.tokenSecret }}
{{- if .name }}
- name: token
  secret:
    secretName: {{ .name }}
    items:
      - {key: {{ .key }}, path: token}
{{- end }}
{{- end }}
{{- with .Values.connector.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
