// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
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
	errs = append(errs, LimitTLS(c, &tls.Config{}))
	return errors.Join(errs...)
}

// LimitTLS sets the versions, cipher suites and key exchange mechanisms of a server that the agent's configuration allows.
func LimitTLS(c *kubeletv1beta1.KubeletConfiguration, server *tls.Config) error {
	var errs [3]error
	server.MinVersion, errs[0] = cliflag.TLSVersion(c.TLSMinVersion)
	server.CipherSuites, errs[1] = cliflag.TLSCipherSuites(c.TLSCipherSuites)
	server.CurvePreferences, errs[2] = cliflag.TLSCurvePreferences(c.TLSCurvePreferences)
	for i, field := range []string{"tlsMinVersion", "tlsCipherSuites", "tlsCurvePreferences"} {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", field, errs[i])
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if server.MinVersion < tls.VersionTLS13 && len(server.CipherSuites) > 0 && !slices.ContainsFunc(server.CipherSuites, isForHTTP2) {
		return errors.New("tlsCipherSuites must have TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, which HTTP/2 needs, unless tlsMinVersion is VersionTLS13")
	}
	return nil
}

// isForHTTP2 reports whether a cipher suite is one of those of which net/http requires one.
func isForHTTP2(suite uint16) bool {
	return suite == tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 || suite == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
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
