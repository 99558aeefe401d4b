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
{{- if .jwt.issuer -}}
{{- if not .tokens.existingSecret.name -}}
{{- fail "security.jwt.issuer needs security.tokens.existingSecret.name: limits of tenants and the token of `helm test` stand there" -}}
{{- end -}}
{{- if not .jwt.audience -}}
{{- fail "security.jwt.audience: without it a token for any other service of the issuer would be taken" -}}
{{- end -}}
{{- with .jwt.keys -}}
{{- if not (or .url .existingConfigMap.name) -}}
{{- fail "security.jwt.keys: name an address, or a ConfigMap that holds the JWKS" -}}
{{- end -}}
{{- if and .existingConfigMap.caKey (not (and .url .existingConfigMap.name)) -}}
{{- fail "security.jwt.keys.existingConfigMap.caKey is for an address, and needs the ConfigMap's name" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Environment, mounts and volumes of one service; called with root and service (its name). */}}
{{- define "sirocco.servesClients" -}}
{{- if has .service (list "router" "merger") }}yes{{ end -}}
{{- end -}}

{{/* The ConfigMap with what belongs to JWTs; empty where there is none. */}}
{{- define "sirocco.jwtFiles" -}}
{{- with .root.Values.security.jwt -}}
{{- if .issuer }}{{ .keys.existingConfigMap.name }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "sirocco.serviceEnvironment" -}}
{{- $security := .root.Values.security -}}
{{- if and $security.tokens.existingSecret.name (include "sirocco.servesClients" .) }}
- name: SIROCCO_TOKENS
  value: {{ printf "/etc/sirocco/tokens/%s" $security.tokens.existingSecret.key | quote }}
{{- end }}
{{- if and $security.jwt.issuer (include "sirocco.servesClients" .) }}
{{- with $security.jwt }}
- name: SIROCCO_JWT_ISSUER
  value: {{ .issuer | quote }}
- name: SIROCCO_JWT_AUDIENCE
  value: {{ .audience | quote }}
- name: SIROCCO_JWT_KEYS
  value: {{ .keys.url | default (printf "/etc/sirocco/jwt/%s" .keys.existingConfigMap.key) | quote }}
{{- with .keys.existingConfigMap.caKey }}
- name: SIROCCO_JWT_KEYS_CA
  value: {{ printf "/etc/sirocco/jwt/%s" . | quote }}
{{- end }}
- name: SIROCCO_JWT_KEYS_INTERVAL
  value: {{ .keys.interval | quote }}
- name: SIROCCO_JWT_ALGORITHMS
  value: {{ .algorithms | quote }}
- name: SIROCCO_JWT_CLOCK_SKEW
  value: {{ .clockSkew | quote }}
- name: SIROCCO_JWT_TENANT_CLAIM
  value: {{ .tenantClaim | quote }}
- name: SIROCCO_JWT_SCOPE_CLAIM
  value: {{ .scopeClaim | quote }}
- name: SIROCCO_JWT_SCOPE_PREFIX
  value: {{ .scopePrefix | quote }}
{{- end }}
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
{{- if and (include "sirocco.jwtFiles" .) (include "sirocco.servesClients" .) }}
- name: jwt
  mountPath: /etc/sirocco/jwt
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
{{- if and (include "sirocco.jwtFiles" .) (include "sirocco.servesClients" .) }}
- name: jwt
  configMap:
    name: {{ include "sirocco.jwtFiles" . }}
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
