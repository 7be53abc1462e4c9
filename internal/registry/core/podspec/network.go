// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// Limits of the resolver of the C library, see resolv.conf(5).
const (
	maxNameservers    = 3
	maxSearchPaths    = 32
	maxSearchLength   = 2048
	maxHostnameLength = 64
)

func (c *specChecker) dns(path *field.Path) {
	config := c.spec.DNSConfig
	if c.spec.DNSPolicy == v1.DNSNone {
		switch {
		case config == nil:
			c.Required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		case len(config.Nameservers) == 0:
			c.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if config == nil {
		return
	}
	at := path.Child("nameservers")
	if len(config.Nameservers) > maxNameservers {
		c.Invalid(at, config.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, server := range config.Nameservers {
		c.IP(at.Index(i), server, nil)
	}
	validateDNSSearches(c.Checker, config.Searches, path.Child("searches"))
	for i, option := range config.Options {
		if option.Name == "" {
			c.Required(path.Child("options").Index(i), "must not be empty")
		}
	}
}

func validateDNSSearches(c *check.Checker, searches []string, path *field.Path) {
	if len(searches) > maxSearchPaths {
		c.Invalid(path, searches, fmt.Sprintf("must not have more than %v search paths", maxSearchPaths))
	}
	if len(strings.Join(searches, " ")) > maxSearchLength {
		c.Invalid(path, searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	for i, search := range searches {
		if search == "." {
			continue
		}
		search = strings.TrimSuffix(search, ".")
		c.Invalid(path.Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search)...)
	}
}

func (c *specChecker) hostAliases(path *field.Path) {
	for i, alias := range c.spec.HostAliases {
		c.IP(path.Index(i).Child("ip"), alias.IP, nil)
		for j, name := range alias.Hostnames {
			c.DNSSubdomain(path.Index(i).Child("hostnames").Index(j), name)
		}
	}
}

func (c *specChecker) hostname(path *field.Path) {
	spec := c.spec
	if spec.Hostname != "" {
		c.DNSLabel(path.Child("hostname"), spec.Hostname)
	}
	if spec.Subdomain != "" {
		c.DNSLabel(path.Child("subdomain"), spec.Subdomain)
	}
	if spec.HostnameOverride == nil {
		return
	}
	at := path.Child("hostnameOverride")
	if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
		c.Forbidden(at, "may not be specified when setHostnameAsFQDN is true")
	}
	if spec.HostNetwork {
		c.Forbidden(at, "may not be specified when hostNetwork is true")
	}
	c.MaxBytes(at, *spec.HostnameOverride, maxHostnameLength)
	c.DNSSubdomain(at, *spec.HostnameOverride)
}
