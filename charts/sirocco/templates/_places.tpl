{{/* Where Kafka, Redis and the archive are: the user's own, or those for development. */}}
{{- define "sirocco.hasKafka" -}}
{{- if and .Values.development.enabled .Values.development.kafka.enabled }}yes{{ end -}}
{{- end -}}

{{- define "sirocco.hasRedis" -}}
{{- if and .Values.development.enabled .Values.development.redis.enabled }}yes{{ end -}}
{{- end -}}

{{- define "sirocco.hasArchive" -}}
{{- if and .Values.development.enabled .Values.development.archive.enabled }}yes{{ end -}}
{{- end -}}

{{- define "sirocco.kafka" -}}
{{- if include "sirocco.hasKafka" . -}}
{{- include "sirocco.fullname" . }}-kafka:9092
{{- else -}}
{{- .Values.kafka.bootstrapServers -}}
{{- end -}}
{{- end -}}

{{- define "sirocco.redis" -}}
{{- if include "sirocco.hasRedis" . -}}
redis://{{ include "sirocco.fullname" . }}-redis:6379/0
{{- else -}}
{{- .Values.redis.url -}}
{{- end -}}
{{- end -}}

{{- define "sirocco.archive" -}}
{{- if include "sirocco.hasArchive" . -}}
/archive
{{- else -}}
{{- .Values.archive.url -}}
{{- end -}}
{{- end -}}

{{/* Name of the claim that is mounted at /archive; nothing where the archive is a bucket. */}}
{{- define "sirocco.archiveClaim" -}}
{{- if include "sirocco.hasArchive" . -}}
{{- include "sirocco.fullname" . }}-archive
{{- else -}}
{{- .Values.archive.existingClaim -}}
{{- end -}}
{{- end -}}

{{/* A folder of an archive, called with uri and name; options of a URI stay behind its path. */}}
{{- define "sirocco.folder" -}}
{{- $parts := splitn "?" 2 .uri -}}
{{- trimSuffix "/" $parts._0 }}/{{ .name }}{{ with $parts._1 }}?{{ . }}{{ end -}}
{{- end -}}
