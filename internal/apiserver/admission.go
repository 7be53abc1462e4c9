// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"io"

	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	quota "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kindred-project/kindred/internal/admission"
	"github.com/kindred-project/kindred/internal/admission/resourcequota"
)

// newAdmission returns the chain of all plugins, in upstream's order. A plugin that watches a kind that is not served would
// keep the server from becoming ready.
func newAdmission(c Config, config *rest.Config, client kubernetes.Interface, shared informers.SharedInformerFactory, a authorizer.Authorizer, g *genericapiserver.Config, policies *admission.Policies, extra genericadmission.PluginInitializers) (genericadmission.Interface, error) {
	plugins := genericadmission.NewPlugins()
	policies.Register(plugins)
	quota.Register(plugins)
	admission.Register(plugins, c.Clock)
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	basic := initializer.New(client, dynamicClient, shared, a, utilfeature.DefaultFeatureGate, g.EffectiveVersion, g.DrainedNotify(), mapper)
	return plugins.NewFromPlugins(admission.Order(), noConfiguration{}, append(extra, basic, resourcequota.Initializer(c.Clock, client, g.MergedResourceConfig.ResourceEnabled)), nil)
}

// noConfiguration configures no plugin.
type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }
