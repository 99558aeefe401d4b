{{/* Where clients find a service; called with root, service (its name) and values (its part). */}}
{{- define "sirocco.service" -}}
{{- $root := .root -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "sirocco.fullname" $root }}-{{ .service }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .service }}
  {{- with .values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .values.service.type }}
  selector:
    {{- include "sirocco.selectorLabels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .service }}
  ports:
    {{- if eq .service "gateway" }}
    - name: api
      port: {{ .values.port }}
      targetPort: api
      appProtocol: http
    {{- else }}
    - name: grpc
      port: {{ $root.Values.grpcPort }}
      targetPort: grpc
      appProtocol: grpc
    {{- end }}
{{- end -}}
