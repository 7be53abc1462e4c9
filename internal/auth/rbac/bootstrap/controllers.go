// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// workloads are the groups of the workload kinds: apps, and extensions, their former group.
var workloads = []string{apps, extensions}

// addControllers adds a role for each controller and binds it to the controller's service account.
func (p *Policy) addControllers() {
	p.controller("attachdetach-controller",
		on(core, "persistentvolumeclaims persistentvolumes", "list watch"),
		on(core, "nodes", read),
		on(core, "nodes/status", change),
		on(core, "pods", "list watch"),
		recordEvents(),
		on(storage, "volumeattachments", read+" create delete"),
		on(storage, "csidrivers", read),
		on(storage, "csinodes", read),
	)
	p.controller("certificate-controller",
		on(certificates, "certificatesigningrequests", read+" delete"),
		on(certificates, "certificatesigningrequests/approval certificatesigningrequests/status", "update"),
		on(certificates, "signers", "approve").named("kubernetes.io/kube-apiserver-client-kubelet"),
		on(certificates, "signers", "sign").named(""+
			"kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet "+
			"kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown"),
		on(authorization, "subjectaccessreviews", "create"),
		recordEvents(),
	)
	p.controller("clusterrole-aggregation-controller",
		on(rbac, "clusterroles", "escalate get list watch update patch"),
	)
	p.controller("cronjob-controller",
		on(batch, "cronjobs", read+" update"),
		on(batch, "jobs", read+" create update patch delete"),
		on(batch, "cronjobs/status", "update"),
		on(batch, "cronjobs/finalizers", "update"),
		on(core, "pods", "list watch delete"),
		recordEvents(),
	)
	p.controller("daemon-set-controller",
		onGroups(workloads, "daemonsets", read),
		onGroups(workloads, "daemonsets/status", "update"),
		onGroups(workloads, "daemonsets/finalizers", "update"),
		on(core, "nodes", "list watch"),
		on(core, "pods", "list watch create patch delete"),
		on(core, "pods/binding", "create"),
		on(apps, "controllerrevisions", read+" create update patch delete"),
		recordEvents(),
	)
	p.controller("deployment-controller",
		onGroups(workloads, "deployments", read+" update"),
		onGroups(workloads, "deployments/status", "update"),
		onGroups(workloads, "deployments/finalizers", "update"),
		onGroups(workloads, "replicasets", read+" create update patch delete"),
		on(core, "pods", read+" update"),
		recordEvents(),
	)
	p.controller("device-taint-eviction-controller",
		on(core, "pods", read+" delete"),
		on(core, "pods/status", change),
		on(resource, "resourceclaims", read),
		on(resource, "resourceslices", read),
		on(resource, "deviceclasses", read),
		recordEvents(),
		on(resource, "devicetaintrules/status", change),
		on(resource, "devicetaintrules", read),
	)
	p.controller("disruption-controller",
		onGroups(workloads, "deployments", read),
		onGroups(workloads, "replicasets", read),
		on(core, "replicationcontrollers", read),
		on(policy, "poddisruptionbudgets", read),
		on(apps, "statefulsets", read),
		on(policy, "poddisruptionbudgets/status", "update"),
		on(core, "pods/status", change),
		on(anyGroup, "*/scale", "get"),
		recordEvents(),
	)
	p.controller("endpoint-controller",
		on(core, "pods services", read),
		on(core, "endpoints", read+" create update delete"),
		on(core, "endpoints/restricted", "create"),
		recordEvents(),
	)
	p.controller("endpointslice-controller",
		on(core, "nodes pods services", read),
		on(core, "services/finalizers", "update"),
		on(discovery, "endpointslices", read+" create update delete"),
		recordEvents(),
	)
	p.controller("endpointslicemirroring-controller",
		on(core, "endpoints services", read),
		on(core, "services/finalizers", "update"),
		on(core, "endpoints/finalizers", "update"),
		on(discovery, "endpointslices", read+" create update delete"),
		recordEvents(),
	)
	p.controller("ephemeral-volume-controller",
		on(core, "pods", read),
		on(core, "pods/finalizers", "update"),
		on(core, "persistentvolumeclaims", read+" create"),
		recordEvents(),
	)
	p.controller("expand-controller",
		on(core, "persistentvolumes", read+" "+change),
		on(core, "persistentvolumeclaims/status", change),
		on(core, "persistentvolumeclaims", read),
		recordEvents(),
	)
	p.controller("generic-garbage-collector",
		on(anyGroup, "*", read+" update patch delete"),
		recordEvents(),
	)
	p.controller("horizontal-pod-autoscaler",
		on(autoscaling, "horizontalpodautoscalers", read),
		on(autoscaling, "horizontalpodautoscalers/status", "update"),
		on(anyGroup, "*/scale", "get update"),
		on(core, "pods", "list watch"),
		on(metrics, "pods", "list watch"),
		on(customMetrics, "*", read),
		on(externalMetrics, "*", read),
		recordEvents(),
	)
	p.controller("job-controller",
		on(batch, "jobs", read+" "+change),
		on(batch, "jobs/status", "update"),
		on(batch, "jobs/finalizers", "update"),
		on(core, "pods", "list watch create patch delete"),
		recordEvents(),
	)
	p.controller("kube-apiserver-serving-clustertrustbundle-publisher",
		on(certificates, "signers", "attest").named("kubernetes.io/kube-apiserver-serving"),
		on(certificates, "clustertrustbundles", "list watch create update delete"),
		recordEvents(),
	)
	p.controller("legacy-service-account-token-cleaner",
		on(core, "configmaps", "get").named("kube-apiserver-legacy-service-account-token-tracking"),
		on(core, "secrets", "patch delete"),
	)
	p.controller("namespace-controller",
		on(core, "namespaces", read+" delete"),
		on(core, "namespaces/finalize namespaces/status", "update"),
		on(anyGroup, "*", read+" delete deletecollection"),
	)
	p.controller("node-controller",
		on(core, "nodes", read+" update patch delete"),
		on(core, "nodes/status", change),
		on(core, "pods/status", change),
		on(core, "pods", read+" delete"),
		on(coordination, "leases", read),
		recordEvents(),
	)
	p.controller("persistent-volume-binder",
		on(core, "persistentvolumes", read+" create update delete"),
		on(core, "persistentvolumes/status", "update"),
		on(core, "persistentvolumeclaims", read+" update"),
		on(core, "persistentvolumeclaims/status", "update"),
		on(core, "pods", read+" create delete"),
		on(storage, "storageclasses", read),
		on(core, "nodes", "list watch"),
		recordEvents(),
		on(core, "events", "watch"),
	)
	p.controller("pod-garbage-collector",
		on(core, "pods", "list watch delete"),
		on(core, "nodes", read),
		on(core, "pods/status", "patch"),
	)
	p.controller("podcertificaterequestcleaner",
		on(certificates, "podcertificaterequests", read+" delete"),
	)
	p.controller("pv-protection-controller",
		on(core, "persistentvolumes", read+" update"),
		recordEvents(),
	)
	p.controller("pvc-protection-controller",
		on(core, "persistentvolumeclaims", read+" update"),
		on(core, "persistentvolumeclaims/status", "update"),
		on(core, "pods", read),
		recordEvents(),
	)
	p.controller("replicaset-controller",
		onGroups(workloads, "replicasets", read+" update"),
		onGroups(workloads, "replicasets/status", "update"),
		onGroups(workloads, "replicasets/finalizers", "update"),
		on(core, "pods", "list watch create patch delete"),
		recordEvents(),
	)
	p.controller("replication-controller",
		on(core, "replicationcontrollers", read+" update"),
		on(core, "replicationcontrollers/status", "update"),
		on(core, "replicationcontrollers/finalizers", "update"),
		on(core, "pods", "list watch create patch delete"),
		recordEvents(),
	)
	p.controller("resource-claim-controller",
		on(core, "pods", read),
		on(core, "pods/finalizers", "update"),
		on(resource, "resourceclaims", read+" create delete"),
		on(resource, "resourceclaims resourceclaims/status", change),
		on(core, "pods/status", change),
		recordEvents(),
		on(resource, "resourceclaims/binding", change),
	)
	p.controller("resourcequota-controller",
		on(anyGroup, "*", "list watch"),
		on(core, "resourcequotas/status", "update"),
		recordEvents(),
	)
	p.controller("root-ca-cert-publisher",
		on(core, "configmaps", "create update"),
		recordEvents(),
	)
	p.controller("route-controller",
		on(core, "nodes", "list watch"),
		on(core, "nodes/status", "patch"),
		recordEvents(),
	)
	p.controller("selinux-warning-controller",
		recordEvents(),
		on(core, "persistentvolumes", read),
		on(core, "persistentvolumeclaims", read),
		on(core, "pods", read),
		on(storage, "csidrivers", read),
	)
	p.controller("service-account-controller",
		on(core, "serviceaccounts", "create"),
		recordEvents(),
	)
	p.controller("service-cidrs-controller",
		on(networking, "servicecidrs", read+" "+change),
		on(networking, "servicecidrs/finalizers", change),
		on(networking, "servicecidrs/status", change),
		on(networking, "ipaddresses", read),
		recordEvents(),
	)
	p.controller("service-controller",
		on(core, "services", read),
		on(core, "services/status", change),
		on(core, "nodes", "list watch"),
		recordEvents(),
	)
	p.controller("statefulset-controller",
		on(core, "pods", "list watch"),
		on(apps, "statefulsets", read),
		on(apps, "statefulsets/status", "update"),
		on(apps, "statefulsets/finalizers", "update"),
		on(core, "pods", "get create update patch delete"),
		on(apps, "controllerrevisions", read+" create update patch delete"),
		on(core, "persistentvolumeclaims", read+" create"),
		on(core, "persistentvolumeclaims", "update delete"),
		on(core, "pods/finalizers", "update"),
		recordEvents(),
	)
	p.controller("storage-version-migrator-controller",
		on(anyGroup, "*", "list patch"),
		on(apiextensions, "customresourcedefinitions", "get"),
		on(apiextensions, "customresourcedefinitions/status", "patch"),
		on(storagemigration, "storageversionmigrations/status", "update"),
	)
	p.controller("ttl-after-finished-controller",
		on(batch, "jobs", read+" delete"),
		recordEvents(),
	)
	p.controller("ttl-controller",
		on(core, "nodes", "list watch update patch"),
		recordEvents(),
	)
	p.controller("validatingadmissionpolicy-status-controller",
		on(admissionregistration, "validatingadmissionpolicies", read),
		on(admissionregistration, "validatingadmissionpolicies/status", "get update patch"),
		recordEvents(),
	)
	p.controller("volumeattributesclass-protection-controller",
		on(core, "persistentvolumeclaims", read),
		on(core, "persistentvolumes", read),
		on(storage, "volumeattributesclasses", read+" update"),
		recordEvents(),
	)
}

// controller adds the role of a controller and its binding.
func (p *Policy) controller(name string, rules ...rule) {
	role := "system:controller:" + name
	p.clusterRole(role, rules...)
	p.bind(role, systemAccount(name))
}
