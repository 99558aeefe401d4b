{{- define "sirocco.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Cut at 40 so that what is appended ("-coordinator", "-test") stays below the limit of 63. */}}
{{- define "sirocco.fullname" -}}
{{- $name := include "sirocco.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sirocco.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sirocco.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Called with root and image (its part of the values). */}}
{{- define "sirocco.imageOf" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "sirocco.image" -}}
{{- include "sirocco.imageOf" (dict "root" . "image" .Values.image) -}}
{{- end -}}

{{/* What a selector may hold: it can never be changed afterwards. */}}
{{- define "sirocco.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sirocco.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sirocco.labels" -}}
{{ include "sirocco.selectorLabels" . }}
app.kubernetes.io/part-of: sirocco
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sirocco.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
