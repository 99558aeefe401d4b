{{/*
A Spark job; called with root, job (its part of the values), name, file, and out (what it leaves).
As a CronJob, or, where it has no schedule, as a Job of this revision.
*/}}
{{- define "sirocco.sparkJob" -}}
{{- $root := .root -}}
{{- $fullname := include "sirocco.fullname" $root -}}
{{- if .job.schedule }}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $fullname }}-{{ .name }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  schedule: {{ .job.schedule | quote }}
  # Two of them would read the same, and propose two maps.
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 3600
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      {{- include "sirocco.sparkJobSpec" . | nindent 6 }}
{{- else }}
apiVersion: batch/v1
kind: Job
metadata:
  # A Job cannot be changed: each revision has its own.
  name: {{ $fullname }}-{{ .name }}-{{ $root.Release.Revision }}
  labels:
    {{- include "sirocco.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  ttlSecondsAfterFinished: {{ $root.Values.spark.ttlSeconds }}
  {{- include "sirocco.sparkJobSpec" . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sirocco.sparkJobSpec" -}}
{{- $root := .root -}}
{{- $spark := .root.Values.spark -}}
backoffLimit: 1
activeDeadlineSeconds: {{ $spark.deadlineSeconds }}
template:
  metadata:
    labels:
      # Not the labels of the selectors: no service may send anything here.
      app.kubernetes.io/name: {{ include "sirocco.name" $root }}-job
      app.kubernetes.io/instance: {{ $root.Release.Name }}
      app.kubernetes.io/component: job
      sirocco/job: {{ .name }}
    annotations:
      {{- if not $root.Values.monitoring.monitor.enabled }}
      prometheus.io/scrape: "true"
      prometheus.io/path: /metrics
      prometheus.io/port: {{ $root.Values.httpPort | quote }}
      {{- end }}
      sirocco/result: {{ .out | quote }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "sirocco.serviceAccountName" $root }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- with $root.Values.image.pullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml $root.Values.podSecurityContext | nindent 6 }}
    {{- $propose := and (eq .name "build-map") .job.propose }}
    {{ ternary "initContainers" "containers" $propose }}:
      - name: spark
        image: {{ include "sirocco.imageOf" (dict "root" $root "image" $spark.image) }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        command: [python, /opt/sirocco/spark-jobs/{{ .file }}]
        args:
          {{- toYaml .arguments | nindent 10 }}
          - --out
          - {{ .out }}
          {{- with .job.arguments }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        envFrom:
          {{- include "sirocco.environmentFrom" $root | nindent 10 }}
        env:
          {{- with include "sirocco.kafkaCredentials" $root }}
          {{- . | nindent 10 }}
          {{- end }}
          - name: POD_NAME
            valueFrom:
              fieldRef:
                fieldPath: metadata.name
          - name: SPARK_DRIVER_MEMORY
            value: {{ $spark.driverMemory | quote }}
          - name: SPARK_LOCAL_DIRS
            value: /scratch
          - name: SIROCCO_KERNEL_CACHE
            value: /scratch/kernels
          - name: SIROCCO_JOB_LINGER_S
            value: {{ $spark.lingerSeconds | quote }}
        ports:
          - name: http
            containerPort: {{ $root.Values.httpPort }}
        resources:
          {{- toYaml $spark.resources | nindent 10 }}
        securityContext:
          {{- include "sirocco.containerSecurityContext" $root | nindent 10 }}
        volumeMounts:
          - name: scratch
            mountPath: /scratch
          - name: tmp
            mountPath: /tmp
          {{- include "sirocco.mounts" $root | nindent 10 }}
    {{- if $propose }}
    containers:
      - name: propose
        image: {{ include "sirocco.image" $root }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        command: [sirocco, map, propose, --as-next, --wait, --timeout, "3600", --router]
        args:
          - {{ include "sirocco.fullname" $root }}-router:{{ $root.Values.grpcPort }}
          - {{ .out }}
          {{- with $root.Values.security }}
          {{- if .tls.existingSecret.name }}
          - --ca=/etc/sirocco/ca/ca.crt
          - --server-name={{ .tls.name }}
          {{- end }}
          {{- if .tokens.existingSecret.name }}
          - --token-file=/etc/sirocco/client/token
          {{- end }}
          {{- end }}
        env:
          - name: SIROCCO_KERNEL_CACHE
            value: /tmp/kernels
        resources:
          requests: {cpu: 100m, memory: 256Mi}
          limits: {memory: 512Mi}
        securityContext:
          {{- include "sirocco.containerSecurityContext" $root | nindent 10 }}
        volumeMounts:
          - name: scratch
            mountPath: /scratch
            readOnly: true
          - name: tmp
            mountPath: /tmp
          {{- include "sirocco.clientMounts" $root | nindent 10 }}
    {{- end }}
    volumes:
      - name: scratch
        emptyDir:
          sizeLimit: {{ $spark.scratch }}
      - name: tmp
        emptyDir: {}
      {{- include "sirocco.volumes" $root | nindent 6 }}
      {{- if $propose }}
      {{- include "sirocco.clientVolumes" $root | nindent 6 }}
      {{- end }}
    {{- with $spark.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $spark.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $spark.affinity }}
    affinity:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}
