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

{{/* The headless service, which gives each pod its name. */}}
{{- define "kedge.nodes" -}}
{{- include "kedge.fullname" . }}-nodes
{{- end -}}

{{- define "kedge.nodesDomain" -}}
{{- printf "%s.%s.svc.%s" (include "kedge.nodes" .) .Release.Namespace .Values.clusterDomain -}}
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

{{- define "kedge.isCluster" -}}
{{- if .Values.coordinator.endpoints }}true{{ end -}}
{{- end -}}

{{/* etcd://HOST:PORT,.../PREFIX?OPTION=VALUE&... */}}
{{- define "kedge.coordinator" -}}
{{- $of := .Values.coordinator -}}
{{- $prefix := default (printf "kedge/%s/%s" .Release.Namespace (include "kedge.fullname" .)) $of.prefix -}}
{{- $options := list -}}
{{- if $of.tls.existingSecret -}}
{{- $options = append $options (printf "ca=/etc/kedge/etcd-tls/%s" $of.tls.caKey) -}}
{{- if $of.tls.certKey -}}
{{- $options = append $options (printf "cert=/etc/kedge/etcd-tls/%s" $of.tls.certKey) -}}
{{- $options = append $options (printf "key=/etc/kedge/etcd-tls/%s" $of.tls.keyKey) -}}
{{- end -}}
{{- if $of.tls.serverName -}}
{{- $options = append $options (printf "server-name=%s" (urlquery $of.tls.serverName)) -}}
{{- end -}}
{{- end -}}
{{- if $of.user.name -}}
{{- $options = append $options (printf "user=%s" (urlquery $of.user.name)) -}}
{{- $options = append $options (printf "password-file=/etc/kedge/etcd-user/%s" $of.user.passwordKey) -}}
{{- end -}}
etcd://{{ join "," $of.endpoints }}/{{ $prefix }}{{ if $options }}?{{ join "&" $options }}{{ end }}
{{- end -}}

{{/* The external host of a pod: (dict "root" $ "pod" NAME "at" NUMBER). Empty: that of its machine. */}}
{{- define "kedge.externalHost" -}}
{{- $external := .root.Values.external -}}
{{- if $external.hostTemplate -}}
{{- $external.hostTemplate | replace "{pod}" .pod -}}
{{- else if $external.hosts -}}
{{- index $external.hosts .at -}}
{{- end -}}
{{- end -}}

{{/* Host names of management, for the header Host. */}}
{{- define "kedge.allowedHosts" -}}
{{- $name := include "kedge.fullname" . -}}
{{- $service := printf "%s.%s.svc" $name .Release.Namespace -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) $service (printf "%s.%s" $service .Values.clusterDomain) -}}
{{- $hosts = append $hosts (printf ".%s" (include "kedge.nodesDomain" .)) -}}
{{- if ne .Values.external.type "none" -}}
{{- range $at := until (int .Values.replicaCount) -}}
{{- $pod := printf "%s-%d" $name $at -}}
{{- $host := include "kedge.externalHost" (dict "root" $ "pod" $pod "at" $at) -}}
{{- if $host -}}{{- $hosts = append $hosts $host -}}{{- end -}}
{{- end -}}
{{- end -}}
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
{{- if and (not $v.coordinator.endpoints) (gt (int $v.replicaCount) 1) -}}
{{- fail "replicaCount is more than 1, and coordinator.endpoints is empty: nodes of a cluster need etcd; for one server set replicaCount=1" -}}
{{- end -}}
{{- if and (eq $v.serverGroup.source "fixed") (not $v.serverGroup.name) -}}
{{- fail "serverGroup.source is \"fixed\", and serverGroup.name is empty" -}}
{{- end -}}
{{- if and $v.coordinator.user.name (not $v.coordinator.user.existingSecret) -}}
{{- fail "coordinator.user.existingSecret is empty: it names the secret with the password of coordinator.user.name" -}}
{{- end -}}
{{- if ne (empty $v.coordinator.tls.certKey) (empty $v.coordinator.tls.keyKey) -}}
{{- fail "coordinator.tls.certKey and coordinator.tls.keyKey belong together" -}}
{{- end -}}
{{- if ne $v.external.type "none" -}}
{{- if not $v.coordinator.endpoints -}}
{{- fail "external.type needs a cluster (coordinator.endpoints): one server tells clients the address at which they reached it, so service.type is enough" -}}
{{- end -}}
{{- if and $v.external.hosts $v.external.hostTemplate -}}
{{- fail "give only one of external.hosts and external.hostTemplate" -}}
{{- end -}}
{{- if and $v.external.hosts (ne (len $v.external.hosts) (int $v.replicaCount)) -}}
{{- fail "external.hosts needs one host for each of the replicaCount pods" -}}
{{- end -}}
{{- if and (eq $v.external.type "LoadBalancer") (not (or $v.external.hosts $v.external.hostTemplate)) -}}
{{- fail "external.type LoadBalancer needs external.hosts or external.hostTemplate: a node tells clients its external host" -}}
{{- end -}}
{{- end -}}
{{- end -}}
