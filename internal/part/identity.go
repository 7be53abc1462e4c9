// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package part

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/version"
)

// Identity is the user that a part acts as, and its user agent, from which the API server takes the name
// of its field manager. The parts have upstream's user names, so that the bootstrap roles apply to them
// and audit logs read the same.
type Identity struct {
	user.Info
	// Agent is the user agent without a version.
	Agent string
}

// The user agents of upstream's programs.
const (
	ControllerAgent = "kube-controller-manager"
	NodeAgent       = "kubelet"
	ProxyAgent      = "kube-proxy"
)

// UserAgent returns the user agent with the version of Kubernetes.
func (i Identity) UserAgent() string { return i.Agent + "/" + KubernetesVersion() }

// KubernetesVersion returns the Kubernetes version of the API and the nodes, which is stamped into the
// binary.
func KubernetesVersion() string { return version.Get().GitVersion }

// User returns an authenticated user in the given groups.
func User(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

// ServiceAccount returns the user of a service account in kube-system.
func ServiceAccount(name string) user.Info {
	return User(serviceaccount.MakeUsername(metav1.NamespaceSystem, name), serviceaccount.MakeGroupNames(metav1.NamespaceSystem)...)
}
