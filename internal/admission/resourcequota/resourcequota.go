// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota tells the library's admission plugin, which compares a
// request with the quotas of its namespace
// (k8s.io/apiserver/pkg/admission/plugin/resourcequota), what quotas count.
package resourcequota

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/quota"
)

// Initializer hands the evaluators to the library's plugin. It must come after
// the initializer that tells the plugin when the server ends.
func Initializer(c clock.PassiveClock) admission.PluginInitializer { return configured{c} }

type configured struct{ clock clock.PassiveClock }

// Initialize implements admission.PluginInitializer.
func (c configured) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(quota.Configuration(c.clock))
	}
}
