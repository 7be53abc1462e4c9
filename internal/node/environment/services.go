// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the Service of the API server, whose variables every pod gets.
const apiService = "kubernetes"

// servicesFor returns the Services whose variables a pod gets: those of its namespace if links is set,
// and that of the API server unless the pod's namespace has a Service with the same name.
func servicesFor(all []*v1.Service, namespace string, links bool) []*v1.Service {
	byName := map[string]*v1.Service{}
	for _, service := range all {
		if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == v1.ClusterIPNone || len(service.Spec.Ports) == 0 {
			continue
		}
		own := links && service.Namespace == namespace
		api := service.Namespace == metav1.NamespaceDefault && service.Name == apiService
		switch {
		case own:
			byName[service.Name] = service
		case api && byName[service.Name] == nil:
			byName[service.Name] = service
		}
	}
	out := make([]*v1.Service, 0, len(byName))
	for _, service := range byName {
		out = append(out, service)
	}
	return out
}

// redirectAPI sets the address of the API server's Service to api, if that is valid.
func redirectAPI(services []*v1.Service, api netip.AddrPort) []*v1.Service {
	if !api.IsValid() {
		return services
	}
	for i, service := range services {
		if service.Namespace != metav1.NamespaceDefault || service.Name != apiService {
			continue
		}
		moved := service.DeepCopy()
		moved.Spec.ClusterIP = api.Addr().String()
		moved.Spec.Ports = moved.Spec.Ports[:1]
		moved.Spec.Ports[0].Port = int32(api.Port())
		services[i] = moved
	}
	return services
}

// serviceVariables returns the variables of both schemes: Kubernetes' ({NAME}_SERVICE_HOST ...) and
// that of Docker links ({NAME}_PORT_80_TCP ...).
func serviceVariables(services []*v1.Service) map[string]string {
	out := map[string]string{}
	for _, service := range services {
		host, prefix := service.Spec.ClusterIP, variableName(service.Name)
		out[prefix+"_SERVICE_HOST"] = host
		for i, port := range service.Spec.Ports {
			number := strconv.Itoa(int(port.Port))
			protocol := string(port.Protocol)
			if protocol == "" {
				protocol = string(v1.ProtocolTCP)
			}
			url := strings.ToLower(protocol) + "://" + net.JoinHostPort(host, number)
			if i == 0 {
				out[prefix+"_SERVICE_PORT"] = number
				out[prefix+"_PORT"] = url
			}
			if port.Name != "" {
				out[prefix+"_SERVICE_PORT_"+variableName(port.Name)] = number
			}
			link := fmt.Sprintf("%s_PORT_%s_%s", prefix, number, strings.ToUpper(protocol))
			out[link] = url
			out[link+"_PROTO"] = strings.ToLower(protocol)
			out[link+"_PORT"] = number
			out[link+"_ADDR"] = host
		}
	}
	return out
}

func variableName(s string) string {
	return strings.ToUpper(strings.ReplaceAll(s, "-", "_"))
}
