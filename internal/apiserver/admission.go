// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"io"
	"slices"

	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
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
	"github.com/kindred-project/kindred/internal/admission/certificates"
	"github.com/kindred-project/kindred/internal/admission/defaultclass"
	"github.com/kindred-project/kindred/internal/admission/limitranger"
	"github.com/kindred-project/kindred/internal/admission/noderestriction"
	"github.com/kindred-project/kindred/internal/admission/ownerrefs"
	"github.com/kindred-project/kindred/internal/admission/podgroup"
	"github.com/kindred-project/kindred/internal/admission/podsecurity"
	"github.com/kindred-project/kindred/internal/admission/podupdate"
	"github.com/kindred-project/kindred/internal/admission/priority"
	"github.com/kindred-project/kindred/internal/admission/resourcequota"
	"github.com/kindred-project/kindred/internal/admission/runtimeclass"
	"github.com/kindred-project/kindred/internal/admission/serviceaccount"
	"github.com/kindred-project/kindred/internal/admission/storage"
	"github.com/kindred-project/kindred/internal/admission/taints"
	"github.com/kindred-project/kindred/internal/admission/topologylabels"
	"github.com/kindred-project/kindred/internal/admission/unserved"
)

// enabledPlugins are the plugins whose kinds are served. A plugin that watches a kind that is not
// served would keep the server from becoming ready.
var enabledPlugins = []string{
	lifecycle.PluginName,
	limitranger.Name,
	serviceaccount.Name,
	noderestriction.Name,
	taints.NodeName,
	podsecurity.Name,
	priority.Name,
	taints.TolerationsName,
	defaultclass.StorageClassName,
	storage.InUseName,
	podgroup.Name,
	ownerrefs.Name,
	storage.ResizeName,
	runtimeclass.Name,
	certificates.ApprovalName,
	certificates.SigningName,
	certificates.TrustBundleName,
	certificates.SubjectName,
	defaultclass.IngressClassName,
	topologylabels.Name,
	podupdate.DeclaredFeaturesName,
	podupdate.ResizeName,
	unserved.Name,
	quota.PluginName,
}

// newAdmission returns the chain of plugins, in upstream's order.
func newAdmission(c Config, config *rest.Config, client kubernetes.Interface, shared informers.SharedInformerFactory, a authorizer.Authorizer, g *genericapiserver.Config, extra genericadmission.PluginInitializers) (genericadmission.Interface, error) {
	plugins := genericadmission.NewPlugins()
	genericapiserver.RegisterAllAdmissionPlugins(plugins)
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
	enabled := slices.Concat(enabledPlugins, extendingPlugins)
	order := slices.DeleteFunc(admission.Order(), func(name string) bool { return !slices.Contains(enabled, name) })
	basic := initializer.New(client, dynamicClient, shared, a, utilfeature.DefaultFeatureGate, g.EffectiveVersion, g.DrainedNotify(), mapper)
	return plugins.NewFromPlugins(order, noConfiguration{}, append(extra, basic, resourcequota.Initializer(c.Clock, client, g.MergedResourceConfig.ResourceEnabled)), nil)
}

// noConfiguration configures no plugin.
type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }
