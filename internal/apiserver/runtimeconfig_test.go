// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"
)

func TestCheckRuntimeConfig(t *testing.T) {
	for _, test := range []struct {
		config map[string]string
		want   string // the error; empty if there is none
	}{
		{nil, ""},
		{map[string]string{"api/all": "true"}, ""},
		{map[string]string{"api/beta": "true", "api/alpha": "true"}, ""},
		{map[string]string{"api/beta": "false"}, ""},
		{map[string]string{"api/all": "false", "api/ga": "true"}, ""},
		{map[string]string{"api/alpha": "false"}, ""},
		{map[string]string{"autoscaling/v1": "false"}, ""},
		{map[string]string{"autoscaling/v2/horizontalpodautoscalers": "false"}, ""},
		{map[string]string{"apps/v1": "true", "v1": "true", "batch/v1/jobs": ""}, ""},
		{map[string]string{"extensions/v1beta1": "true", "apps/v1beta1": "false", "apps/v1beta2/deployments": "true"}, ""},

		{map[string]string{"api/all": "false"}, "invalid runtime-config with only api/all=false"},
		{map[string]string{"api/ga": "no"}, "invalid value api/ga=no"},
		{map[string]string{"apps/v1": "no"}, "invalid value of apps/v1"},
		{map[string]string{"api/legacy": "false"}, "unknown api groups api/legacy"},
		{map[string]string{"apps.example/v1": "true"}, "unknown api groups apps.example/v1"},
		{map[string]string{"apps": "true"}, "invalid key apps"},
		{map[string]string{"apps/v1beta3": "true"}, "unknown api version apps/v1beta3; this server knows apps/v1, apps/v1beta2, apps/v1beta1"},
		{map[string]string{"autoscaling/v2beta2": "false"}, "unknown api version autoscaling/v2beta2; this server knows autoscaling/v2, autoscaling/v1"},
		{map[string]string{"v2": "true"}, "invalid key v2"},
		{map[string]string{"apps/v1": "false"}, "apps/v1 cannot be turned off"},
		{map[string]string{"v1": "false"}, "v1 cannot be turned off"},
		{map[string]string{"apps/v1/deployments": "false"}, "apps/v1/deployments cannot be turned off"},
		{map[string]string{"apiextensions.k8s.io/v1": "false"}, "apiextensions.k8s.io/v1 cannot be turned off"},
		{map[string]string{"api/ga": "false"}, "rbac.authorization.k8s.io/v1"},
	} {
		err := CheckRuntimeConfig(test.config)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%v: %v", test.config, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%v: the error is %v, and should contain %q", test.config, err, test.want)
		}
	}
}
