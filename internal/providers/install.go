// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// manager is the field manager of what is installed.
	manager = "kindred-providers"
	// startLimit limits the wait until a manager is available, and startCheck is the time between two looks at it.
	startLimit = 3 * time.Minute
	startCheck = 200 * time.Millisecond

	// Labels that clusterctl sets, and looks for.
	clusterctlLabel = "clusterctl.cluster.x-k8s.io"
	inventoryLabel  = clusterctlLabel + "/core"
	providerLabel   = "cluster.x-k8s.io/provider"
)

// inventoryKind is the kind by which clusterctl knows the providers of a cluster.
var inventoryKind = schema.GroupVersionKind{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "Provider"}

// Installer installs releases in a cluster.
type Installer struct {
	Client client.Client
	Clock  clock.WithTicker
	// Progress is told each step and the time that it took.
	Progress func(step string, took time.Duration)
	// Notice is told what the user should know.
	Notice func(line string)
}

// Install applies the objects of a release, and waits until all managers are available. A provider whose version in the cluster is newer
// is left alone. What the release has is right afterwards, also if somebody changed it; certificates that end soon are renewed.
func (i *Installer) Install(ctx context.Context, r *Release) error {
	began := i.Clock.Now()
	if err := i.applyInventory(ctx, r.inventory); err != nil {
		return err
	}
	var installed []Provider
	for _, p := range r.Providers {
		newer, err := i.newerThan(ctx, p)
		if err != nil {
			return err
		}
		if newer != "" {
			i.Notice(fmt.Sprintf("provider %s stays %s, which is newer than %s of the release", p.Label, newer, p.Version))
			continue
		}
		if err := i.applyProvider(ctx, p); err != nil {
			return fmt.Errorf("provider %s: %w", p.Label, err)
		}
		installed = append(installed, p)
	}
	i.Progress("objects of Cluster API", i.Clock.Since(began))
	began = i.Clock.Now()
	for _, p := range installed {
		if err := i.awaitManagers(ctx, p); err != nil {
			return fmt.Errorf("provider %s: %w", p.Label, err)
		}
	}
	i.Progress("managers of Cluster API", i.Clock.Since(began))
	return nil
}

// MachinesDirs returns the directories in which the managers of installed providers make machines of their host. They may be others than
// those of the release: of a provider that is newer, or of a release that is to be replaced.
func (i *Installer) MachinesDirs(ctx context.Context) (dirs []string, err error) {
	deployments := &unstructured.UnstructuredList{}
	deployments.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if err := i.Client.List(ctx, deployments, client.HasLabels{providerLabel}); err != nil {
		return nil, err
	}
	for _, d := range deployments.Items {
		dirs = append(dirs, machinesDirs(&d)...)
	}
	return dirs, nil
}

// newerThan returns the version of a provider in the cluster if it is newer than that of the release, or "".
func (i *Installer) newerThan(ctx context.Context, p Provider) (string, error) {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(inventoryKind)
	err := i.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Label}, have)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, _, _ := unstructured.NestedString(have.Object, "version")
	installed, err := version.ParseSemantic(text)
	if err != nil {
		return "", fmt.Errorf("Provider %s/%s: %w", p.Namespace, p.Label, err)
	}
	if installed.GreaterThan(version.MustParseSemantic(p.Version)) {
		return text, nil
	}
	return "", nil
}

func (i *Installer) applyProvider(ctx context.Context, p Provider) error {
	objects, err := Certify(p.objects, i.Clock.Now(), func(namespace, name string) (*unstructured.Unstructured, error) {
		secret := &unstructured.Unstructured{}
		secret.SetAPIVersion("v1")
		secret.SetKind("Secret")
		err := i.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return secret, err
	})
	if err != nil {
		return err
	}
	for _, o := range objects {
		setLabel(o, clusterctlLabel, "")
		setLabel(o, providerLabel, p.Label)
	}
	// The inventory is last: clusterctl takes a provider for installed that is in it.
	return i.apply(ctx, append(inOrder(objects), p.inventory()))
}

// inventory is the entry of a provider in clusterctl's inventory.
func (p Provider) inventory() *unstructured.Unstructured {
	entry := &unstructured.Unstructured{Object: map[string]any{"providerName": p.Name, "type": p.Type, "version": p.Version}}
	entry.SetGroupVersionKind(inventoryKind)
	entry.SetNamespace(p.Namespace)
	entry.SetName(p.Label)
	entry.SetLabels(map[string]string{clusterctlLabel: "", inventoryLabel: "inventory", providerLabel: p.Label})
	return entry
}

// inOrder sorts objects: what others need is first, and pods are started when everything else is there.
func inOrder(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	order := []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret"}
	rank := func(o *unstructured.Unstructured) int {
		if o.GetKind() == "Deployment" {
			return len(order) + 1
		}
		if at := slices.Index(order, o.GetKind()); at >= 0 {
			return at
		}
		return len(order)
	}
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return sorted
}

// apply applies objects, and takes over fields that others have set.
func (i *Installer) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		// Apply writes the answer to its argument.
		if err := i.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.ForceOwnership, client.FieldOwner(manager)); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// applyInventory defines the kind Provider, and returns when it is served.
func (i *Installer) applyInventory(ctx context.Context, definitions []*unstructured.Unstructured) error {
	if err := i.apply(ctx, definitions); err != nil {
		return err
	}
	return i.await(ctx, func() (string, error) {
		entries := &unstructured.UnstructuredList{}
		entries.SetGroupVersionKind(inventoryKind)
		err := i.Client.List(ctx, entries, client.Limit(1))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return "the kind Provider is not served", nil
		}
		return "", err
	})
}

// awaitManagers waits until the Deployments of a provider are available.
func (i *Installer) awaitManagers(ctx context.Context, p Provider) error {
	for _, o := range p.objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		if err := i.await(ctx, func() (string, error) { return i.unavailable(ctx, client.ObjectKeyFromObject(o)) }); err != nil {
			return fmt.Errorf("%w; \"kindred kubectl describe pods --namespace %s\" shows why", err, p.Namespace)
		}
	}
	return nil
}

// await waits until check returns neither what is missing nor an error.
func (i *Installer) await(ctx context.Context, check func() (missing string, err error)) error {
	limit := i.Clock.NewTimer(startLimit)
	defer limit.Stop()
	ticker := i.Clock.NewTicker(startCheck)
	defer ticker.Stop()
	for {
		missing, err := check()
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C():
			return fmt.Errorf("%s after %v", missing, startLimit)
		case <-ticker.C():
		}
	}
}

// unavailable returns "" if the newest version of a Deployment is available, and else what is missing.
func (i *Installer) unavailable(ctx context.Context, key client.ObjectKey) (string, error) {
	d := &appsv1.Deployment{}
	if err := i.Client.Get(ctx, key, d); err != nil {
		return "", err
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	ready := slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
	if d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= wanted && d.Status.AvailableReplicas >= wanted && ready {
		return "", nil
	}
	return fmt.Sprintf("Deployment %s has %d of %d pods available", key, d.Status.AvailableReplicas, wanted), nil
}

func setLabel(o *unstructured.Unstructured, key, value string) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	o.SetLabels(labels)
}
