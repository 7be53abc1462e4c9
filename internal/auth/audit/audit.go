// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit configures the audit log of k8s.io/apiserver with upstream's options. It checks them
// more strictly than upstream: options that would log nothing are an error.
package audit

import (
	"errors"
	"fmt"

	library "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
)

// Config is the result of Load. The zero value logs nothing.
type Config struct{ options *options.AuditOptions }

// Load checks options, which may be nil, and the files that they name.
func Load(o *options.AuditOptions) (Config, error) {
	if o == nil {
		return Config{}, nil
	}
	log, hook := o.LogOptions.Path, o.WebhookOptions.ConfigFile
	switch {
	case o.PolicyFile == "" && log == "" && hook == "":
		return Config{}, nil
	case o.PolicyFile == "":
		return Config{}, errors.New("an audit backend is given, but without --audit-policy-file there are no audit events")
	case log == "" && hook == "":
		return Config{}, errors.New("--audit-policy-file is given, but neither --audit-log-path nor --audit-webhook-config-file: the audit events have no backend")
	}
	if err := errors.Join(o.Validate()...); err != nil {
		return Config{}, err
	}
	if _, err := policy.LoadPolicyFromFile(o.PolicyFile); err != nil {
		return Config{}, fmt.Errorf("--audit-policy-file: %w", err)
	}
	if hook != "" {
		if _, err := webhook.LoadKubeconfig(hook, nil); err != nil {
			return Config{}, fmt.Errorf("--audit-webhook-config-file %s: %w", hook, err)
		}
	}
	return Config{options: o}, nil
}

// Apply configures the audit log of a server.
func (c Config) Apply(g *server.Config) error {
	if c.options == nil {
		return nil
	}
	if err := c.apply(g); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// apply lets k8s.io/apiserver configure everything but the log file.
func (c Config) apply(g *server.Config) error {
	withoutFile := *c.options
	if withoutFile.LogOptions.Path == "-" {
		return withoutFile.ApplyTo(g) // standard output
	}
	withoutFile.LogOptions.Path = ""
	if err := withoutFile.ApplyTo(g); err != nil || c.options.LogOptions.Path == "" {
		return err
	}
	log, err := openLog(c.options.LogOptions)
	if err != nil {
		return err
	}
	if g.AuditBackend == nil {
		g.AuditBackend = log
		return nil
	}
	g.AuditBackend = library.Union(log, g.AuditBackend)
	return nil
}
