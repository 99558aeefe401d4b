{{/* Labels of the servers for development: other names than those that the selectors of Sirocco mean. */}}
{{- define "sirocco.developmentLabels" -}}
app.kubernetes.io/name: {{ include "sirocco.name" .root }}-{{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "sirocco.developmentSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}
