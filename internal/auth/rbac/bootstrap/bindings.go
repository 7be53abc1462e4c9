// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	users "k8s.io/apiserver/pkg/authentication/user"
)

// addClusterRoleBindings adds the default bindings.
func (p *Policy) addClusterRoleBindings() {
	p.bind("cluster-admin", group(users.SystemPrivilegedGroup))
	p.bind("system:monitoring", group(users.MonitoringGroup))
	p.bind("system:discovery", group(users.AllAuthenticated))
	p.bind("system:basic-user", group(users.AllAuthenticated))
	p.bind("system:public-info-viewer", group(users.AllAuthenticated), group(users.AllUnauthenticated))
	p.bind("system:service-account-issuer-discovery", group(serviceaccount.AllServiceAccountsGroup))
	p.bind("system:cluster-trust-bundle-discovery", group(serviceaccount.AllServiceAccountsGroup))
	p.bind("system:node-proxier", user(users.KubeProxy))
	p.bind("system:kube-controller-manager", user(users.KubeControllerManager))
	p.bind("system:kube-scheduler", user(users.KubeScheduler))
	p.bind("system:volume-scheduler", user(users.KubeScheduler))
	p.bind("system:kube-dns", systemAccount("kube-dns"))
	// It has no subjects, because nodes have their own authorizer. Administrators who disable
	// it add the subject system:nodes.
	p.bind("system:node")
}

// addNamespaced adds the roles that apply only in the system's namespaces.
func (p *Policy) addNamespaced() {
	p.role(metav1.NamespacePublic, "system:controller:bootstrap-signer",
		on(core, "configmaps", read),
		on(core, "configmaps", "update").named("cluster-info"),
		recordEvents(),
	)
	p.role(metav1.NamespaceSystem, "extension-apiserver-authentication-reader",
		on(core, "configmaps", read).named("extension-apiserver-authentication"),
	)
	p.role(metav1.NamespaceSystem, "system::leader-locking-kube-controller-manager",
		on(coordination, "leases", read+" create update"),
		on(coordination, "leasecandidates", read+" create update"),
	)
	p.role(metav1.NamespaceSystem, "system::leader-locking-kube-scheduler",
		on(coordination, "leases", read+" create update"),
		on(coordination, "leasecandidates", read+" create update"),
	)
	p.role(metav1.NamespaceSystem, "system:controller:bootstrap-signer",
		on(core, "secrets", read),
	)
	p.role(metav1.NamespaceSystem, "system:controller:cloud-provider",
		on(core, "configmaps", read+" create"),
	)
	p.role(metav1.NamespaceSystem, "system:controller:token-cleaner",
		on(core, "secrets", read+" delete"),
		recordEvents(),
	)

	p.bindIn(metav1.NamespaceSystem, "system::extension-apiserver-authentication-reader", "extension-apiserver-authentication-reader",
		user(users.KubeControllerManager), user(users.KubeScheduler))
	p.bindIn(metav1.NamespaceSystem, "system::leader-locking-kube-controller-manager", "system::leader-locking-kube-controller-manager",
		user(users.KubeControllerManager), systemAccount("kube-controller-manager"), systemAccount("leader-election-controller"))
	p.bindIn(metav1.NamespaceSystem, "system::leader-locking-kube-scheduler", "system::leader-locking-kube-scheduler",
		user(users.KubeScheduler), systemAccount("kube-scheduler"))
	for _, name := range []string{"bootstrap-signer", "cloud-provider", "token-cleaner"} {
		p.bindIn(metav1.NamespaceSystem, "system:controller:"+name, "system:controller:"+name, systemAccount(name))
	}
	p.bindIn(metav1.NamespacePublic, "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", systemAccount("bootstrap-signer"))
}
