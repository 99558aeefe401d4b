{{/* The Deployment of one service; called with root, service (its name) and values (its part). */}}
{{- define "sirocco.deployment" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "sirocco.fullname" $root) .service -}}
{{/* An evaluator first hands its slots over; then all drain for 20 s at most, and close. */}}
{{- $least := add (int .values.preStopSeconds) 25 (ternary 15 0 (eq .service "evaluator")) -}}
{{- if lt (int .values.terminationGracePeriodSeconds) (int $least) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds: %d is less than the %d that preStopSeconds and the drain may take" .service (int .values.terminationGracePeriodSeconds) $least) -}}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .service }}
spec:
  {{- if not (include "sirocco.scaled" .values) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      # The successor is there before what it takes over is let go.
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      {{- include "sirocco.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .service }}
  template:
    metadata:
      labels:
        {{- with .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- include "sirocco.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .service }}
      annotations:
        # Processes read their settings once, so a change of them is a new set of pods.
        checksum/config: {{ include (print $root.Template.BasePath "/configmap.yaml") $root | sha256sum }}
        {{- if eq .service "connector" }}
        checksum/connector: {{ include "sirocco.connectorConfig" $root | sha256sum }}
        {{- end }}
        {{- if not $root.Values.monitoring.monitor.enabled }}
        prometheus.io/scrape: "true"
        prometheus.io/path: /metrics
        prometheus.io/port: {{ $root.Values.httpPort | quote }}
        {{- end }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "sirocco.serviceAccountName" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      containers:
        - name: {{ .service }}
          image: {{ include "sirocco.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [python, -m, sirocco.services.{{ .service }}]
          {{- if eq .service "gateway" }}
          env:
            {{- include "sirocco.gatewayEnvironment" $root | nindent 12 }}
          {{- else if eq .service "connector" }}
          {{- with .values.existingSecret }}
          envFrom:
            - secretRef:
                name: {{ . }}
          {{- end }}
          env:
            {{- include "sirocco.connectorEnvironment" $root | nindent 12 }}
          {{- else }}
          envFrom:
            {{- include "sirocco.environmentFrom" $root | nindent 12 }}
          env:
            {{- include "sirocco.environment" $root | nindent 12 }}
            {{- include "sirocco.serviceEnvironment" . | nindent 12 }}
          {{- end }}
            {{- with .values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- if eq .service "gateway" }}
            - name: api
              containerPort: {{ .values.port }}
            {{- else if ne .service "connector" }}
            - name: grpc
              containerPort: {{ $root.Values.grpcPort }}
            {{- end }}
            - name: http
              containerPort: {{ $root.Values.httpPort }}
            {{- if and (eq .service "router") (include "sirocco.secured" $root) }}
            - name: peers
              containerPort: {{ $root.Values.security.tls.peerPort }}
            {{- end }}
          # Kernels that the cache lacks are compiled first: some ten seconds, minutes on a busy node.
          startupProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 2
            failureThreshold: 90
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
            timeoutSeconds: 3
            failureThreshold: 2
          {{- if .values.preStopSeconds }}
          lifecycle:
            preStop:
              # Endpoints and balancers forget the pod meanwhile; SIGTERM follows, and the drain.
              exec:
                command: [sleep, {{ .values.preStopSeconds | quote }}]
          {{- end }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- include "sirocco.containerSecurityContext" $root | nindent 12 }}
          volumeMounts:
            - name: kernel-cache
              mountPath: /var/cache/sirocco
            - name: tmp
              mountPath: /tmp
            {{- if has .service (list "gateway" "connector") }}
            {{- include "sirocco.authorityMount" $root | nindent 12 }}
            {{- if eq .service "connector" }}
            {{- include "sirocco.connectorMounts" $root | nindent 12 }}
            {{- end }}
            {{- else }}
            {{- include "sirocco.mounts" $root | nindent 12 }}
            {{- include "sirocco.serviceMounts" . | nindent 12 }}
            {{- end }}
      volumes:
        - name: kernel-cache
          emptyDir:
            sizeLimit: {{ $root.Values.kernelCache.sizeLimit }}
        - name: tmp
          emptyDir: {}
        {{- if has .service (list "gateway" "connector") }}
        {{- include "sirocco.authorityVolume" $root | nindent 8 }}
        {{- if eq .service "connector" }}
        {{- include "sirocco.connectorVolumes" $root | nindent 8 }}
        {{- end }}
        {{- else }}
        {{- include "sirocco.volumes" $root | nindent 8 }}
        {{- include "sirocco.serviceVolumes" . | nindent 8 }}
        {{- end }}
      topologySpreadConstraints:
        {{- if .values.topologySpreadConstraints }}
        {{- toYaml .values.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "sirocco.selectorLabels" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $.service }}
        {{- end }}
        {{- end }}
      {{- with .values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .service }}
spec:
  {{- toYaml .values.podDisruptionBudget | nindent 2 }}
  selector:
    matchLabels:
      {{- include "sirocco.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .service }}
{{- end -}}
