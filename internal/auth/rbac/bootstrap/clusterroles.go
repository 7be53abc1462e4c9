// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aggregateTo is the label by which a ClusterRole adds its rules to another one,
// here admin, edit or view.
const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

func (p *Policy) addClusterRoles() {
	p.addPeople()
	p.addEveryone()
	p.addNodes()
	p.addComponents()
	p.addApprovers()
}

// addPeople adds the roles for people. Admin, edit and view have no rules of their own: each
// aggregates the roles with its label, and the next smaller one, so that an extension adds its
// kinds with a label.
func (p *Policy) addPeople() {
	p.clusterRole("cluster-admin",
		on(anyGroup, "*", anyVerb),
		paths("*", anyVerb),
	)
	p.aggregated("admin")
	p.aggregated("edit", "admin")
	p.aggregated("view", "edit")
	p.clusterRole("system:aggregate-to-admin",
		on(authorization, "localsubjectaccessreviews", "create"),
		on(rbac, "rolebindings roles", readWrite),
	).Labels[aggregateTo+"admin"] = "true"
	p.clusterRole("system:aggregate-to-edit",
		on(core, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", read),
		on(core, "serviceaccounts", "impersonate"),
		on(core, "pods pods/attach pods/exec pods/portforward pods/proxy", write),
		on(core, "pods/eviction", "create"),
		on(core, "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "+
			"secrets serviceaccounts services services/proxy", write),
		on(core, "serviceaccounts/token", "create"),
		onGroups([]string{core, events}, "events", write),
		on(apps, "daemonsets deployments deployments/rollback deployments/scale replicasets "+
			"replicasets/scale statefulsets statefulsets/scale", write),
		on(autoscaling, "horizontalpodautoscalers", write),
		on(batch, "cronjobs jobs", write),
		on(extensions, "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies "+
			"replicasets replicasets/scale replicationcontrollers/scale", write),
		on(policy, "poddisruptionbudgets", write),
		on(networking, "ingresses networkpolicies", write),
		on(coordination, "leases", readWrite),
		on(resource, "resourceclaims resourceclaimtemplates", write),
	).Labels[aggregateTo+"edit"] = "true"
	p.clusterRole("system:aggregate-to-view",
		on(core, "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "+
			"replicationcontrollers replicationcontrollers/scale serviceaccounts services "+
			"services/status", read),
		on(core, "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "+
			"resourcequotas resourcequotas/status", read),
		on(core, "namespaces", read),
		onGroups([]string{core, events}, "events", read),
		on(discovery, "endpointslices", read),
		on(apps, "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "+
			"deployments/status replicasets replicasets/scale replicasets/status statefulsets "+
			"statefulsets/scale statefulsets/status", read),
		on(autoscaling, "horizontalpodautoscalers horizontalpodautoscalers/status", read),
		on(batch, "cronjobs cronjobs/status jobs jobs/status", read),
		on(extensions, "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "+
			"ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "+
			"replicationcontrollers/scale", read),
		on(policy, "poddisruptionbudgets poddisruptionbudgets/status", read),
		on(networking, "ingresses ingresses/status networkpolicies", read),
		on(resource, "resourceclaims resourceclaims/status resourceclaimtemplates", read),
	).Labels[aggregateTo+"view"] = "true"
	p.addMetricsReader()
}

// metricsReader is metrics-server's role for people. Its other roles are for metrics-server itself.
const metricsReader = "system:aggregated-metrics-reader"

// addMetricsReader adds the role, because metrics.k8s.io is built in.
func (p *Policy) addMetricsReader() {
	role := p.clusterRole(metricsReader, on(metrics, "nodes pods", read))
	for _, name := range []string{"admin", "edit", "view"} {
		role.Labels[aggregateTo+name] = "true"
	}
}

// aggregated adds a ClusterRole that aggregates the roles with its label, and labels it for other
// roles.
func (p *Policy) aggregated(name string, to ...string) {
	role := p.clusterRole(name)
	role.Rules = nil
	role.AggregationRule = &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}},
	}
	for _, other := range to {
		role.Labels[aggregateTo+other] = "true"
	}
}

// addEveryone adds the roles of all authenticated users, and of all users.
func (p *Policy) addEveryone() {
	p.clusterRole("system:discovery",
		paths("/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/", "get"),
	)
	p.clusterRole("system:basic-user",
		on(authorization, "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
		on(authentication, "selfsubjectreviews", "create"),
	)
	p.clusterRole("system:public-info-viewer",
		paths("/healthz /livez /readyz /version /version/", "get"),
	)
	p.clusterRole("system:monitoring",
		paths("/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz", "get"),
		on(core, "nodes/metrics", "get"),
	)
	p.clusterRole("system:service-account-issuer-discovery",
		paths("/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks "+
			"/openid/v1/jwks/", "get"),
	)
	p.clusterRole("system:cluster-trust-bundle-discovery",
		on(certificates, "clustertrustbundles", read),
	)
}

// addNodes adds the roles of programs on nodes. system:node has no subjects: the node authorizer
// applies its rules to each node, limited to the node's own objects.
func (p *Policy) addNodes() {
	p.clusterRole("system:node", nodeRules()...)
	p.clusterRole("system:node-bootstrapper",
		on(certificates, "certificatesigningrequests", read+" create"),
	)
	p.clusterRole("system:node-proxier",
		on(core, "endpoints services", "list watch"),
		on(core, "nodes", read),
		recordEvents(),
		on(networking, "servicecidrs", "list watch"),
		on(discovery, "endpointslices", "list watch"),
	)
	p.clusterRole("system:node-problem-detector",
		on(core, "nodes", "get"),
		on(core, "nodes/status", "patch"),
		recordEvents(),
	)
	p.clusterRole("system:kubelet-api-admin",
		on(core, "nodes", read),
		on(core, "nodes", "proxy"),
		on(core, "nodes/log nodes/metrics nodes/proxy nodes/stats", anyVerb),
		on(core, "nodes/configz nodes/healthz nodes/pods", anyVerb),
	)
}

// NodeRules returns the rules of system:node, which apply to every node.
func NodeRules() []rbacv1.PolicyRule { return policyRules(nodeRules()) }

func nodeRules() []rule {
	return []rule{
		on(authentication, "tokenreviews", "create"),
		on(authorization, "localsubjectaccessreviews subjectaccessreviews", "create"),
		on(core, "services", read),
		on(core, "nodes", read+" create"),
		on(core, "nodes/status", change),
		on(core, "nodes", change),
		recordEvents(),
		on(core, "pods", read),
		on(core, "pods", "create delete"),
		on(core, "pods/status", change),
		on(core, "pods/eviction", "create"),
		on(core, "configmaps secrets", read),
		on(core, "persistentvolumeclaims persistentvolumes", "get"),
		on(core, "endpoints", "get"),
		on(certificates, "certificatesigningrequests", read+" create"),
		on(coordination, "leases", "get create update patch delete"),
		on(storage, "volumeattachments", "get"),
		on(core, "serviceaccounts/token", "create"),
		on(core, "persistentvolumeclaims/status", "get update patch"),
		on(storage, "csidrivers", read),
		on(storage, "csinodes", "get create update patch delete"),
		on(node, "runtimeclasses", read),
		on(resource, "resourceclaims", "get"),
		on(resource, "resourceslices", "deletecollection"),
		on(certificates, "clustertrustbundles", read),
		on(core, "serviceaccounts", "get"),
		on(certificates, "podcertificaterequests", read+" create"),
	}
}

// addComponents adds the roles of the control plane and its extensions.
func (p *Policy) addComponents() {
	p.clusterRole("system:kube-controller-manager",
		recordEvents(),
		on(coordination, "leases", "create"),
		on(coordination, "leases", "get update").named("kube-controller-manager"),
		on(core, "secrets serviceaccounts", "create"),
		on(core, "secrets", "delete"),
		on(core, "configmaps namespaces secrets serviceaccounts", "get"),
		on(core, "secrets serviceaccounts", "update"),
		on(authentication, "tokenreviews", "create"),
		on(authorization, "subjectaccessreviews", "create"),
		on(anyGroup, "*", "list watch"),
		on(core, "serviceaccounts/token", "create"),
	)
	p.clusterRole("system:kube-scheduler",
		recordEvents(),
		on(coordination, "leases", "create"),
		on(coordination, "leases", read+" update").named("kube-scheduler"),
		on(coordination, "leasecandidates", readWrite),
		on(core, "nodes", read),
		on(core, "pods", read+" delete"),
		on(core, "bindings pods/binding", "create"),
		on(core, "pods/status", change),
		on(core, "replicationcontrollers services", read),
		onGroups(workloads, "replicasets", read),
		on(apps, "statefulsets", read),
		on(policy, "poddisruptionbudgets", read),
		on(core, "persistentvolumeclaims persistentvolumes", read),
		on(authentication, "tokenreviews", "create"),
		on(authorization, "subjectaccessreviews", "create"),
		on(storage, "csinodes", read),
		on(storage, "volumeattachments", read),
		on(core, "namespaces", read),
		on(storage, "csidrivers", read),
		on(storage, "csistoragecapacities", read),
		on(resource, "deviceclasses", read),
		on(resource, "resourceclaims", read+" "+change),
		on(resource, "resourceclaims/status", read+" "+change),
		on(core, "pods/finalizers", "update"),
		on(resource, "resourceslices", read),
		on(resource, "resourceclaims", "create delete"),
		on(resource, "devicetaintrules", read),
		on(resource, "resourceclaims/binding", change),
	)
	p.clusterRole("system:volume-scheduler",
		on(core, "persistentvolumes", read+" "+change),
		on(storage, "storageclasses", read),
		on(core, "persistentvolumeclaims", read+" "+change),
	)
	p.clusterRole("system:kube-aggregator",
		on(core, "endpoints services", read),
	)
	p.clusterRole("system:auth-delegator",
		on(authentication, "tokenreviews", "create"),
		on(authorization, "subjectaccessreviews", "create"),
	)
	p.clusterRole("system:kube-dns",
		on(core, "endpoints services", "list watch"),
	)
	p.clusterRole("system:persistent-volume-provisioner",
		on(core, "persistentvolumes", read+" create delete"),
		on(core, "persistentvolumeclaims", read+" update"),
		on(storage, "storageclasses", read),
		on(core, "events", "watch"),
		recordEvents(),
	)
	p.clusterRole("system:heapster",
		on(core, "events namespaces nodes pods", read),
		on(extensions, "deployments", read),
	)
}

// addApprovers adds the roles to request and approve certificates.
func (p *Policy) addApprovers() {
	p.clusterRole("system:certificates.k8s.io:certificatesigningrequests:nodeclient",
		on(certificates, "certificatesigningrequests/nodeclient", "create"),
	)
	p.clusterRole("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
		on(certificates, "certificatesigningrequests/selfnodeclient", "create"),
	)
	p.clusterRole("system:certificates.k8s.io:kube-apiserver-client-approver",
		on(certificates, "signers", "approve").named("kubernetes.io/kube-apiserver-client"),
	)
	p.clusterRole("system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
		on(certificates, "signers", "approve").named("kubernetes.io/kube-apiserver-client-kubelet"),
	)
	p.clusterRole("system:certificates.k8s.io:kubelet-serving-approver",
		on(certificates, "signers", "approve").named("kubernetes.io/kubelet-serving"),
	)
	p.clusterRole("system:certificates.k8s.io:legacy-unknown-approver",
		on(certificates, "signers", "approve").named("kubernetes.io/legacy-unknown"),
	)
}
