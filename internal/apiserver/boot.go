// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// The steps of a start that kube-apiserver takes in post-start hooks, by the names of these hooks.
// docs/architecture.md says what each has done when its check passes.
const (
	stepAdmission       = "start-apiserver-admission-initializer"
	stepNamespaces      = "start-system-namespaces-controller"
	stepRoles           = "rbac/bootstrap-roles"
	stepPriorityClasses = "scheduling/bootstrap-system-priority-classes"
	stepServiceRange    = "start-kubernetes-service-cidr-controller"
	stepServices        = "start-service-ip-repair-controllers"
	stepKubernetes      = "bootstrap-controller"
	stepTrust           = "start-cluster-authentication-info-controller"
	stepTokens          = "start-legacy-token-tracking-controller"
)

// bootSteps tracks the steps of a start. Each is a check of /healthz, /livez and /readyz, because monitoring
// knows those of kube-apiserver.
type bootSteps map[string]*atomic.Bool

func newBootSteps() bootSteps {
	b := bootSteps{}
	for _, name := range []string{
		stepAdmission, stepNamespaces, stepRoles, stepPriorityClasses, stepServiceRange, stepServices, stepKubernetes, stepTrust, stepTokens,
	} {
		b[name] = &atomic.Bool{}
	}
	return b
}

// pass makes the check of a step succeed.
func (b bootSteps) pass(step string) { b[step].Store(true) }

// passed returns a function that makes the check of a step succeed.
func (b bootSteps) passed(step string) func() { return func() { b.pass(step) } }

var errNotFinished = errors.New("not finished")

func (b bootSteps) checks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for name, done := range b {
		checks = append(checks, healthz.NamedCheck("poststarthook/"+name, func(*http.Request) error {
			if done.Load() {
				return nil
			}
			return errNotFinished
		}))
	}
	slices.SortFunc(checks, func(a, b healthz.HealthChecker) int { return strings.Compare(a.Name(), b.Name()) })
	return checks
}

// addStoreChecks adds the checks of the store. kube-apiserver has one more in /readyz, with a timeout of
// its own.
func addStoreChecks(g *genericapiserver.Config, c Config) {
	check := func(req *http.Request) error { return c.Backend.Check(req.Context()) }
	g.AddHealthChecks(healthz.NamedCheck("etcd", check))
	g.AddReadyzChecks(healthz.NamedCheck("etcd-readiness", check))
}

// cachesCheck returns a check that passes once the watch caches of all built-in resources have been
// filled. kube-apiserver polls for that in a hook, ten times a second.
func cachesCheck(built generic.Built) healthz.HealthChecker {
	unready := map[string]rest.StorageWithReadiness{}
	for gv, resources := range built {
		for resource, storage := range resources {
			if s, ok := storage.(rest.StorageWithReadiness); ok {
				unready[gv.String()+"/"+resource] = s
			}
		}
	}
	var done atomic.Bool
	return healthz.NamedCheck("poststarthook/storage-readiness", func(*http.Request) error {
		if done.Load() {
			return nil
		}
		for name, storage := range unready {
			if err := storage.ReadinessCheck(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		done.Store(true)
		return nil
	})
}

// registrationCheck returns a check that fails while an APIService of a built-in group version is missing
// or not available.
func registrationCheck(names []string, services listers.APIServiceLister) healthz.HealthChecker {
	return healthz.NamedCheck("autoregister-completion", func(*http.Request) error {
		pending := sets.New[string]()
		for _, name := range names {
			service, err := services.Get(name)
			if err != nil || !apiregistration.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
				pending.Insert(name)
			}
		}
		if pending.Len() > 0 {
			return fmt.Errorf("APIServices that are missing or not available: %s", strings.Join(sets.List(pending), ", "))
		}
		return nil
	})
}
