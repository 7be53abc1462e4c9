// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// validateServer returns what is wrong with the fields of the agent's server, or nil.
func validateServer(c *kubeletv1beta1.KubeletConfiguration) error {
	errs := []error{
		port("port", c.Port, 1),
		port("readOnlyPort", c.ReadOnlyPort, 0),
		port("healthzPort", *c.HealthzPort, 0),
		notNegative("authentication.webhook.cacheTTL", c.Authentication.Webhook.CacheTTL.Duration),
		notNegative("authorization.webhook.cacheAuthorizedTTL", c.Authorization.Webhook.CacheAuthorizedTTL.Duration),
		notNegative("authorization.webhook.cacheUnauthorizedTTL", c.Authorization.Webhook.CacheUnauthorizedTTL.Duration),
	}
	if mode := c.Authorization.Mode; mode != kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow && mode != kubeletv1beta1.KubeletAuthorizationModeWebhook {
		errs = append(errs, fmt.Errorf("authorization.mode is %q, and must be AlwaysAllow or Webhook", mode))
	}
	if _, err := netip.ParseAddr(c.Address); c.Address != "" && err != nil {
		errs = append(errs, fmt.Errorf("address is %q, and must be an IP address", c.Address))
	}
	if _, err := netip.ParseAddr(c.HealthzBindAddress); err != nil {
		errs = append(errs, fmt.Errorf("healthzBindAddress is %q, and must be an IP address", c.HealthzBindAddress))
	}
	if c.ReadOnlyPort == c.Port {
		errs = append(errs, fmt.Errorf("readOnlyPort is %d, as port, and must be another", c.ReadOnlyPort))
	}
	if *c.EnableSystemLogQuery && !*c.EnableSystemLogHandler {
		errs = append(errs, errors.New("enableSystemLogQuery needs enableSystemLogHandler"))
	}
	return errors.Join(errs...)
}

func port(field string, value, minimum int32) error {
	if value < minimum || value > 65535 {
		return fmt.Errorf("%s is %d, and must be between %d and 65535", field, value, minimum)
	}
	return nil
}

func notNegative(field string, value time.Duration) error {
	if value < 0 {
		return fmt.Errorf("%s is %v, and must be at least 0", field, value)
	}
	return nil
}
