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

// The parts have upstream's user names, so that the bootstrap roles apply to them and audit logs
// read the same.
var (
	schedulerUser  = identity{named(user.KubeScheduler), "kube-scheduler"}
	controllerUser = identity{named(user.KubeControllerManager), controllerAgent}
	proxyUser      = identity{named(user.KubeProxy), proxyAgent}
)

// identity is the user that a part acts as, and its user agent, from which the API server takes the name
// of its field manager.
type identity struct {
	user.Info
	agent string
}

const (
	controllerAgent = "kube-controller-manager"
	nodeAgent       = "kubelet"
	proxyAgent      = "kube-proxy"
)

// configFor returns a part's client configuration.
func configFor(server *apiserver.Server, as identity) *rest.Config {
	config := server.Config(as.Info)
	config.UserAgent = as.agent + "/" + kubernetesVersion()
	return config
}

// kubeletClientUser is the user that the API server authenticates as to nodes; see pki.KubeletClient.
const kubeletClientUser = "kube-apiserver-kubelet-client"

// named returns an authenticated user without further groups.
func named(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
}

// serviceAccountUser returns the identity of a controller: a service account in kube-system.
func serviceAccountUser(name string) identity {
	return identity{&user.DefaultInfo{
		Name:   serviceaccount.MakeUsername(metav1.NamespaceSystem, name),
		Groups: append(serviceaccount.MakeGroupNames(metav1.NamespaceSystem), user.AllAuthenticated),
	}, controllerAgent}
}

// dnsUser is the identity of the cluster's DNS server.
var dnsUser = identity{serviceAccountUser("cluster-dns").Info, "kindred-dns"}

// clusterPoliciesUser installs the kind ClusterNetworkPolicy and watches its objects. The bootstrap roles are upstream's,
// which allow kube-proxy no custom kinds.
var clusterPoliciesUser = identity{
	&user.DefaultInfo{Name: "kindred:network-policies", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}, proxyAgent,
}

// ingressUser is the identity of the proxy of Ingresses.
var ingressUser = identity{serviceAccountUser("ingress").Info, "kindred-ingress"}

// nodeUser returns the identity of a node's agent.
func nodeUser(name string) identity {
	return identity{&user.DefaultInfo{Name: "system:node:" + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}, nodeAgent}
}

// simulatorUser acts for all simulated nodes. The node authorizer does not apply to it, because it
// is not one node.
var simulatorUser = identity{
	&user.DefaultInfo{Name: "kindred:simulated-nodes", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}, nodeAgent,
}
