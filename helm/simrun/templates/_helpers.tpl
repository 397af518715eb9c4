{{- define "simrun.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "simrun.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "simrun.labels" -}}
{{ include "simrun.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "simrun.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "simrun.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "simrun.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "simrun.podAccount" -}}
{{- default (printf "%s-pod" (include "simrun.fullname" .)) .Values.podServiceAccount.name -}}
{{- end -}}

{{- define "simrun.storePath" -}}
{{- trimAll "/" .Values.store.path -}}
{{- end -}}

{{- define "simrun.storeDirectory" -}}
{{- printf "/simrun/store/%s" (include "simrun.storePath" .) | trimSuffix "/" -}}
{{- end -}}

{{/* The names of all priorities, as a list in YAML. */}}
{{- define "simrun.priorities" -}}
{{- $names := list .Values.cluster.base_priority .Values.cluster.extra_priority -}}
{{- range .Values.cluster.priorities -}}
{{- $names = append $names .base -}}
{{- $names = append $names .extra -}}
{{- end -}}
{{- $names | compact | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{/* The lease that services over this store compete for: the name is made as simrun makes it, so that the Role can name this one alone. */}}
{{- define "simrun.lease" -}}
{{- $volume := printf "{\"persistentVolumeClaim\": {\"claimName\": %s}}" (toJson .Values.store.existingClaim) -}}
{{- $store := printf "[%s, %s]" $volume (toJson (include "simrun.storePath" .)) -}}
{{- printf "simrun-%s" (sha256sum $store | trunc 10) -}}
{{- end -}}

{{/* What --cluster names: the values under `cluster`, and what the chart knows itself. */}}
{{- define "simrun.cluster" -}}
{{- $config := deepCopy .Values.cluster -}}
{{- if not $config.topology -}}
{{- $_ := set $config "topology" nil -}}
{{- end -}}
{{- $_ := set $config "namespace" .Release.Namespace -}}
{{- $_ := set $config "service_account" (include "simrun.podAccount" .) -}}
{{- $_ := set $config "run_as_user" .Values.user -}}
{{- $_ := set $config "run_as_group" .Values.group -}}
{{- $_ := set $config "store" (dict "persistentVolumeClaim" (dict "claimName" .Values.store.existingClaim)) -}}
{{- $_ := set $config "store_path" (include "simrun.storePath" .) -}}
{{- $claim := default .Values.store.existingClaim .Values.snapshots.existingClaim -}}
{{- $_ := set $config "snapshots" (dict "persistentVolumeClaim" (dict "claimName" $claim "readOnly" true)) -}}
{{- $below := .Values.snapshots.path -}}
{{- if eq $claim .Values.store.existingClaim -}}
{{- $below = default (printf "%s/snapshots" (include "simrun.storePath" .)) $below -}}
{{- end -}}
{{- $_ := set $config "snapshots_path" (trimAll "/" $below) -}}
{{- toYaml $config -}}
{{- end -}}
