// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// tokensHold: each server knows the service account tokens of all others.
func (s *session) tokensHold(all []*cluster) {
	s.Helper()
	for _, issuer := range all {
		by := *s
		by.cluster = issuer
		token := by.kubectl("create", "token", "default")
		for _, c := range all {
			config := rest.AnonymousClientConfig(c.config(s.T))
			config.BearerToken = token
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				s.Fatal(err)
			}
			review, err := client.AuthenticationV1().SelfSubjectReviews().Create(s.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if want := "system:serviceaccount:" + s.namespace + ":default"; err != nil || review.Status.UserInfo.Username != want {
				s.Errorf("a token of %s at %s is of %v, %v", issuer.config(s.T).Host, config.Host, review, err)
			}
		}
	}
}

// deletes makes a Deployment without pods, and lets the garbage collector of the server that leads delete its ReplicaSet.
func (s *session) deletes(name string) {
	s.Helper()
	s.kubectl("create", "deployment", name, "--image=any:v1", "--replicas=0")
	s.eventually("its ReplicaSet exists", func() error {
		if got := s.kubectl("get", "replicasets", "-l", "app="+name, "-o", "name"); got == "" {
			return errors.New("not yet")
		}
		return nil
	})
	s.kubectl("delete", "deployment", name)
	s.eventually("its ReplicaSet is gone", func() error {
		if got := s.kubectl("get", "replicasets", "-l", "app="+name, "-o", "name"); got != "" {
			return errors.New(got)
		}
		return nil
	})
}

// comesBackFrom: each server that is left can undelete, also one that does not lead, what a server has collected that is lost.
func (s *session) comesBackFrom(all []*cluster, lost *cluster, name string) {
	s.Helper()
	leads := s.leader().of(s.T, all)
	for _, c := range all {
		if c == lost || c == leads {
			continue
		}
		on := *s
		on.cluster = c
		if r := on.kindred("undelete", "deployment/"+name); r.code != 0 || !strings.Contains(r.out, "ReplicaSet/"+name) {
			s.Errorf("undelete: %d\n%s%s", r.code, r.out, r.err)
		}
	}
}

// givesOnce: of Services that ask different servers for the same address and port at the same time, one gets them.
func (s *session) givesOnce(all []*cluster) {
	s.Helper()
	const services = 10
	var given [services]atomic.Int32
	var asking sync.WaitGroup
	for server, client := range clientsOf(s.T, all, commandLimit) {
		asking.Go(func() {
			for i := range services {
				service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("asks-%d-%d", server, i)}}
				service.Spec.Type, service.Spec.ClusterIP = corev1.ServiceTypeNodePort, fmt.Sprintf("10.96.7.%d", 1+i)
				service.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: int32(31700 + i)}}
				_, err := client.CoreV1().Services(s.namespace).Create(s.Context(), service, metav1.CreateOptions{})
				switch {
				case err == nil:
					given[i].Add(1)
				case !strings.Contains(err.Error(), "already allocated"):
					s.Errorf("Service %s: %v", service.Name, err)
				}
			}
		})
	}
	asking.Wait()
	for i := range given {
		if n := given[i].Load(); n != 1 {
			s.Errorf("%d Services got address and port %d", n, i)
		}
	}
	s.kubectl("delete", "services", "--all")
}
