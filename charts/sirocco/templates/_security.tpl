{{/* TLS and tokens: of services, and of what calls them as a client (the test, proposals of maps). */}}
{{- define "sirocco.secured" -}}
{{- if or .Values.security.tls.existingSecret.name .Values.security.tokens.existingSecret.name }}yes{{ end -}}
{{- end -}}

{{/* What goes together, in words that the schema has not. */}}
{{- define "sirocco.checkSecurity" -}}
{{- with .Values.security -}}
{{- if .tokens.existingSecret.name -}}
{{- if not (or .tls.existingSecret.name .tokens.inPlaintext) -}}
{{- fail "security.tokens would travel in plain text: set security.tls.existingSecret.name, or security.tokens.inPlaintext where a mesh encrypts" -}}
{{- end -}}
{{- if not .client.existingSecret.name -}}
{{- fail "security.client.existingSecret.name: with security.tokens, `helm test` needs a token" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Environment, mounts and volumes of one service; called with root and service (its name). */}}
{{- define "sirocco.servesClients" -}}
{{- if has .service (list "router" "merger") }}yes{{ end -}}
{{- end -}}

{{- define "sirocco.serviceEnvironment" -}}
{{- $security := .root.Values.security -}}
{{- if and $security.tokens.existingSecret.name (include "sirocco.servesClients" .) }}
- name: SIROCCO_TOKENS
  value: {{ printf "/etc/sirocco/tokens/%s" $security.tokens.existingSecret.key | quote }}
{{- end }}
{{- end -}}

{{- define "sirocco.serviceMounts" -}}
{{- $security := .root.Values.security -}}
{{- if $security.tls.existingSecret.name }}
- name: tls
  mountPath: /etc/sirocco/tls
  readOnly: true
{{- end }}
{{- if and $security.tokens.existingSecret.name (include "sirocco.servesClients" .) }}
# The whole directory: single files would not follow a changed secret.
- name: tokens
  mountPath: /etc/sirocco/tokens
  readOnly: true
{{- end }}
{{- end -}}

{{- define "sirocco.serviceVolumes" -}}
{{- $security := .root.Values.security -}}
{{- with $security.tls.existingSecret.name }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if and $security.tokens.existingSecret.name (include "sirocco.servesClients" .) }}
- name: tokens
  secret:
    secretName: {{ $security.tokens.existingSecret.name }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* Likewise of a client of this release. It gets the authority alone, not the services' key. */}}
{{- define "sirocco.authorityMount" -}}
{{- if .Values.security.tls.existingSecret.name }}
- name: client-ca
  mountPath: /etc/sirocco/ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "sirocco.clientMounts" -}}
{{- include "sirocco.authorityMount" . }}
{{- if .Values.security.tokens.existingSecret.name }}
- name: client-token
  mountPath: /etc/sirocco/client
  readOnly: true
{{- end }}
{{- end -}}

{{- define "sirocco.authorityVolume" -}}
{{- with .Values.security.tls.existingSecret }}
{{- if .name }}
- name: client-ca
  secret:
    secretName: {{ .name }}
    defaultMode: 0440
    items:
      - {key: {{ .caKey }}, path: ca.crt}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sirocco.clientVolumes" -}}
{{- include "sirocco.authorityVolume" . }}
{{- if .Values.security.tokens.existingSecret.name }}
- name: client-token
  secret:
    secretName: {{ .Values.security.client.existingSecret.name }}
    defaultMode: 0440
    items:
      - {key: {{ .Values.security.client.existingSecret.key }}, path: token}
{{- end }}
{{- end -}}
