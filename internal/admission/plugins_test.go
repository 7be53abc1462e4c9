// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestOrderIsUpstreams(t *testing.T) {
	// Upstream's AllOrderedPlugins of v1.37, without those that are not served here.
	want := []string{
		"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "PodSecurity", "Priority", "DefaultTolerationSeconds",
		"DefaultStorageClass", "StorageObjectInUseProtection", "PodGroupProtection", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "RuntimeClass",
		"CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest", "CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels", "NodeDeclaredFeatureValidator", "PodResizeValidator",
		"UnservedWarning", // our own
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
	}
	if diff := cmp.Diff(want, Order()); diff != "" {
		t.Error(diff)
	}
}

func TestEveryOrderedPluginCanBeRegistered(t *testing.T) {
	plugins := admission.NewPlugins()
	policies, err := NewPolicies(informers.NewSharedInformerFactory(fake.NewClientset(), 0), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	policies.Register(plugins)
	resourcequota.Register(plugins)
	Register(plugins, clocktesting.NewFakeClock(time.Time{}))
	all := Order()
	slices.Sort(all)
	if diff := cmp.Diff(all, plugins.Registered()); diff != "" {
		t.Error(diff)
	}
}

// TestInitialized initializes each plugin as the server does: the initializer of
// k8s.io/apiserver must supply all dependencies.
func TestInitialized(t *testing.T) {
	client := fake.NewClientset()
	initialize := initializer.New(client, nil, informers.NewSharedInformerFactory(client, 0), authorizerfactory.NewAlwaysAllowAuthorizer(), nil, nil, nil, meta.NewDefaultRESTMapper(nil))
	for _, p := range registered(clocktesting.NewFakeClock(time.Time{})) {
		plugin := p.new()
		initialize.Initialize(plugin)
		if err := admission.ValidateInitialization(plugin); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		_, mutates := plugin.(admission.MutationInterface)
		_, validates := plugin.(admission.ValidationInterface)
		if !mutates && !validates {
			t.Errorf("%s neither mutates nor validates", p.name)
		}
	}
}
