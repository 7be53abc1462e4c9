// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/internal/apiserver"
)

// The parts act under upstream's names, so that its bootstrap roles fit them
// and audit logs read as they do there.
var (
	schedulerUser  = identity{named(user.KubeScheduler), "kube-scheduler"}
	controllerUser = identity{named(user.KubeControllerManager), controllerAgent}
)

// identity is who a part is, and the name under which it writes: field managers are
// called after the user agent.
type identity struct {
	user.Info
	agent string
}

const (
	controllerAgent = "kube-controller-manager"
	nodeAgent       = "kubelet"
)

// configFor is how a part reaches the server.
func configFor(server *apiserver.Server, as identity) *rest.Config {
	config := server.Config(as.Info)
	config.UserAgent = as.agent + "/" + kubernetesVersion()
	return config
}

// kubeletClientUser is who the API server is to nodes; see pki.KubeletClient.
const kubeletClientUser = "kube-apiserver-kubelet-client"

func named(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
}

// serviceAccountUser is a controller's own identity in kube-system.
func serviceAccountUser(name string) identity {
	return identity{&user.DefaultInfo{
		Name:   serviceaccount.MakeUsername(metav1.NamespaceSystem, name),
		Groups: append(serviceaccount.MakeGroupNames(metav1.NamespaceSystem), user.AllAuthenticated),
	}, controllerAgent}
}

// nodeUser is a node's agent.
func nodeUser(name string) identity {
	return identity{&user.DefaultInfo{Name: "system:node:" + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}, nodeAgent}
}

// simulatorUser acts for all simulated nodes at once, which the node authorizer
// knows no single node for.
var simulatorUser = identity{
	&user.DefaultInfo{Name: "kindred:simulated-nodes", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}, nodeAgent,
}
