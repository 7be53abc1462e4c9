// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The parts act under upstream's names, so that its bootstrap roles fit them
// and audit logs read as they do there.
var (
	schedulerUser  = named(user.KubeScheduler)
	controllerUser = named(user.KubeControllerManager)
)

// kubeletClientUser is who the API server is to nodes; see pki.KubeletClient.
const kubeletClientUser = "kube-apiserver-kubelet-client"

func named(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
}

// serviceAccountUser is a controller's own identity in kube-system.
func serviceAccountUser(name string) user.Info {
	return &user.DefaultInfo{
		Name:   serviceaccount.MakeUsername(metav1.NamespaceSystem, name),
		Groups: append(serviceaccount.MakeGroupNames(metav1.NamespaceSystem), user.AllAuthenticated),
	}
}

// nodeUser is a node's agent.
func nodeUser(name string) user.Info {
	return &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
}

// simulatorUser acts for all simulated nodes at once, which the node authorizer
// knows no single node for.
var simulatorUser = &user.DefaultInfo{Name: "kindred:simulated-nodes", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
