// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/internal/part"
)

var (
	schedulerUser  = part.Identity{Info: part.User(user.KubeScheduler), Agent: "kube-scheduler"}
	controllerUser = part.Identity{Info: part.User(user.KubeControllerManager), Agent: part.ControllerAgent}

	// serverUser is the identity of the server itself.
	serverUser = part.Identity{Info: part.User(user.APIServerUser, user.SystemPrivilegedGroup), Agent: "kindred"}

	// ingressUser is the identity of the proxy of Ingresses.
	ingressUser = part.Identity{Info: part.ServiceAccount("ingress"), Agent: "kindred-ingress"}

	// simulatorUser acts for all simulated nodes. The node authorizer does not apply to it, because it
	// is not one node.
	simulatorUser = part.Identity{Info: part.User("kindred:simulated-nodes", user.SystemPrivilegedGroup), Agent: part.NodeAgent}
)

// requests makes client configurations for users.
type requests interface {
	Config(as user.Info) *rest.Config
}

// configFor returns a part's client configuration.
func configFor(api requests, as part.Identity) *rest.Config {
	config := api.Config(as.Info)
	config.UserAgent = as.UserAgent()
	return config
}

// controllerIdentity returns the identity of a controller: a service account in kube-system.
func controllerIdentity(name string) part.Identity {
	return part.Identity{Info: part.ServiceAccount(name), Agent: part.ControllerAgent}
}
