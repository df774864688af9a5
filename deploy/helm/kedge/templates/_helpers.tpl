{{- define "kedge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The names of the pods are this and a number, so it leaves room for labels of 63 characters. */}}
{{- define "kedge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "kedge.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kedge.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kedge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kedge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kedge.labels" -}}
{{ include "kedge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kedge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kedge.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kedge.authSecret" -}}
{{- default (printf "%s-admin" (include "kedge.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{/* Host names of management, for the header Host. */}}
{{- define "kedge.allowedHosts" -}}
{{- $name := include "kedge.fullname" . -}}
{{- $service := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) $service (printf "%s.%s" $service .Values.clusterDomain) -}}
{{- join "," (uniq (concat $hosts .Values.allowedHosts)) -}}
{{- end -}}

{{/* Refuses values that contradict each other, beyond what values.schema.json sees. */}}
{{- define "kedge.check" -}}
{{- $v := .Values -}}
{{- if not $v.image.repository -}}
{{- fail "image.repository is empty: no image is published; build one from deploy/docker and name it" -}}
{{- end -}}
{{- if not (or $v.auth.existingSecret $v.auth.password) -}}
{{- fail "give auth.existingSecret, a secret with the administrator's password, or auth.password" -}}
{{- end -}}
{{- if and $v.auth.existingSecret $v.auth.password -}}
{{- fail "give only one of auth.existingSecret and auth.password" -}}
{{- end -}}
{{- end -}}
