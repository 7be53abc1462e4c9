// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func (c *specChecker) probes(container *v1.Container, path *field.Path) {
	validateKillingProbe(c.Checker, container.LivenessProbe, path.Child("livenessProbe"))
	if probe := container.ReadinessProbe; probe != nil {
		at := path.Child("readinessProbe")
		validateProbe(c.Checker, probe, at)
		if probe.TerminationGracePeriodSeconds != nil {
			c.Invalid(at.Child("terminationGracePeriodSeconds"), *probe.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	}
	validateKillingProbe(c.Checker, container.StartupProbe, path.Child("startupProbe"))
}

// validateKillingProbe checks a probe whose failure restarts the container. It must succeed after
// one success.
func validateKillingProbe(c *check.Checker, probe *v1.Probe, path *field.Path) {
	if probe == nil {
		return
	}
	validateProbe(c, probe, path)
	if probe.SuccessThreshold != 1 {
		c.Invalid(path.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
	}
}

func validateProbe(c *check.Checker, probe *v1.Probe, path *field.Path) {
	validateHandler(c, handler{exec: probe.Exec, httpGet: probe.HTTPGet, tcpSocket: probe.TCPSocket, grpc: probe.GRPC}, nil, path)
	c.NonNegative(path.Child("initialDelaySeconds"), int64(probe.InitialDelaySeconds))
	c.NonNegative(path.Child("timeoutSeconds"), int64(probe.TimeoutSeconds))
	c.NonNegative(path.Child("periodSeconds"), int64(probe.PeriodSeconds))
	c.NonNegative(path.Child("successThreshold"), int64(probe.SuccessThreshold))
	c.NonNegative(path.Child("failureThreshold"), int64(probe.FailureThreshold))
	if grace := probe.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		c.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0")
	}
}

func (c *specChecker) lifecycle(lifecycle *v1.Lifecycle, path *field.Path) {
	if lifecycle == nil {
		return
	}
	c.hook(lifecycle.PostStart, path.Child("postStart"))
	c.hook(lifecycle.PreStop, path.Child("preStop"))
}

func (c *specChecker) hook(hook *v1.LifecycleHandler, path *field.Path) {
	if hook == nil {
		return
	}
	validateHandler(c.Checker, handler{exec: hook.Exec, httpGet: hook.HTTPGet, tcpSocket: hook.TCPSocket, sleep: hook.Sleep},
		c.spec.TerminationGracePeriodSeconds, path)
}

// handler is the action of a probe or hook: exactly one of its fields is set.
type handler struct {
	exec      *v1.ExecAction
	httpGet   *v1.HTTPGetAction
	tcpSocket *v1.TCPSocketAction
	grpc      *v1.GRPCAction
	sleep     *v1.SleepAction
}

func validateHandler(c *check.Checker, h handler, gracePeriod *int64, path *field.Path) {
	found := false
	for _, action := range []struct {
		name  string
		set   bool
		check func(path *field.Path)
	}{
		{"exec", h.exec != nil, func(path *field.Path) { validateExec(c, h.exec, path) }},
		{"httpGet", h.httpGet != nil, func(path *field.Path) { validateHTTPGet(c, h.httpGet, path) }},
		{"tcpSocket", h.tcpSocket != nil, func(path *field.Path) { c.PortNumberOrName(path.Child("port"), h.tcpSocket.Port) }},
		{"grpc", h.grpc != nil, func(path *field.Path) { c.PortNumberOrName(path.Child("port"), intstr.FromInt32(h.grpc.Port)) }},
		{"sleep", h.sleep != nil, func(path *field.Path) { validateSleep(c, h.sleep, gracePeriod, path) }},
	} {
		switch {
		case !action.set:
		case found:
			c.Forbidden(path.Child(action.name), "may not specify more than 1 handler type")
		default:
			found = true
			action.check(path.Child(action.name))
		}
	}
	if !found {
		c.Required(path, "must specify a handler type")
	}
}

func validateExec(c *check.Checker, exec *v1.ExecAction, path *field.Path) {
	if len(exec.Command) == 0 {
		c.Required(path.Child("command"), "")
	}
}

func validateHTTPGet(c *check.Checker, get *v1.HTTPGetAction, path *field.Path) {
	c.NonEmpty(path.Child("path"), get.Path)
	c.PortNumberOrName(path.Child("port"), get.Port)
	check.OneOf(c, path.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for _, header := range get.HTTPHeaders {
		c.Invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name)...)
	}
}

// validateSleep requires that a sleep ends within the pod's grace period, if there is one. A
// missing grace period is reported elsewhere.
func validateSleep(c *check.Checker, sleep *v1.SleepAction, gracePeriod *int64, path *field.Path) {
	if gracePeriod != nil && (sleep.Seconds < 0 || sleep.Seconds > *gracePeriod) {
		c.Invalid(path, sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *gracePeriod))
	}
}
