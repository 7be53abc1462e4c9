// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	certificates "k8s.io/client-go/informers/certificates/v1"
	core "k8s.io/client-go/informers/core/v1"
	storage "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// Sources are the informers that the graph reads. Each except Pods may be nil if the cluster does
// not serve its kind; nodes then access no objects of it.
type Sources struct {
	Pods                   core.PodInformer
	PersistentVolumes      core.PersistentVolumeInformer
	VolumeAttachments      storage.VolumeAttachmentInformer
	PodCertificateRequests certificates.PodCertificateRequestInformer
	// ResourceSlice gets a slice by its name from the API: there may be many, and nodes request
	// them rarely.
	ResourceSlice func(name string) (*resourcev1.ResourceSlice, error)
}

// graph knows which objects a node may access through its pods:
//
//	node <- pod <- secret, configmap, serviceaccount, resourceclaim
//	node <- pod <- pvc <- pv <- secret
//	node <- volumeattachment, resourceslice, podcertificaterequest
//
// It consists of two indexes in the informers' stores: pods by every object that they let their
// node access, and volumes by their secrets. So it handles no events, and is always consistent with
// the cache.
type graph struct {
	pods, volumes cache.Indexer
	sources       Sources
}

const (
	// reachIndex finds pods by the objects that they let a node access.
	reachIndex = "node.reach"
	// secretIndex finds persistent volumes by their secrets.
	secretIndex = "node.secret"
)

// The kinds of objects that pods refer to.
type kind string

const (
	podKind            kind = "pod"
	secretKind         kind = "secret"
	configMapKind      kind = "configmap"
	claimKind          kind = "pvc"
	serviceAccountKind kind = "serviceaccount"
	resourceClaimKind  kind = "resourceclaim"
)

// reachKey returns the index key of a node and an object that it may access. None of its parts has
// a slash.
func reachKey(node string, k kind, namespace, name string) string {
	return node + "/" + string(k) + "/" + namespace + "/" + name
}

func newGraph(sources Sources) (*graph, error) {
	g := &graph{sources: sources}
	pods := sources.Pods.Informer()
	if err := addIndex(pods, reachIndex, indexPod); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	g.pods = pods.GetIndexer()
	// A factory starts only the informers that were requested before.
	if sources.VolumeAttachments != nil {
		sources.VolumeAttachments.Informer()
	}
	if sources.PodCertificateRequests != nil {
		sources.PodCertificateRequests.Informer()
	}
	if sources.PersistentVolumes == nil {
		return g, nil
	}
	volumes := sources.PersistentVolumes.Informer()
	if err := addIndex(volumes, secretIndex, indexVolume); err != nil {
		return nil, fmt.Errorf("index persistent volumes: %w", err)
	}
	g.volumes = volumes.GetIndexer()
	return g, nil
}

func addIndex(informer cache.SharedIndexInformer, name string, index cache.IndexFunc) error {
	if _, ok := informer.GetIndexer().GetIndexers()[name]; ok {
		return nil
	}
	return informer.AddIndexers(cache.Indexers{name: index})
}

// indexPod returns the index keys of the objects that a pod lets its node access. A mirror pod gives
// access only to itself, because the node writes it.
func indexPod(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a pod", obj)
	}
	node := pod.Spec.NodeName
	if node == "" {
		return nil, nil
	}
	keys := []string{reachKey(node, podKind, pod.Namespace, pod.Name)}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return keys, nil
	}
	refs := ReferencesOf(pod)
	for _, group := range []struct {
		kind  kind
		names []string
	}{
		{secretKind, refs.Secrets},
		{configMapKind, refs.ConfigMaps},
		{claimKind, refs.Claims},
		{resourceClaimKind, refs.ResourceClaims},
	} {
		for _, name := range group.names {
			keys = append(keys, reachKey(node, group.kind, pod.Namespace, name))
		}
	}
	if refs.ServiceAccount != "" {
		keys = append(keys, reachKey(node, serviceAccountKind, pod.Namespace, refs.ServiceAccount))
	}
	return keys, nil
}

func indexVolume(obj any) ([]string, error) {
	pv, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("%T is not a persistent volume", obj)
	}
	var keys []string
	for _, secret := range volumeSecrets(pv) {
		keys = append(keys, secret.namespace+"/"+secret.name)
	}
	return keys, nil
}

// byPod reports whether a pod on the node is, or refers to, the object.
func (g *graph) byPod(node string, k kind, namespace, name string) bool {
	// IndexKeys fails only for an index that does not exist.
	pods, _ := g.pods.IndexKeys(reachIndex, reachKey(node, k, namespace, name))
	return len(pods) > 0
}

// secret reports whether a node may access a secret: through a pod on it, or through a volume that such
// a pod claims.
func (g *graph) secret(node, namespace, name string) bool {
	if g.byPod(node, secretKind, namespace, name) {
		return true
	}
	if g.volumes == nil {
		return false
	}
	volumes, _ := g.volumes.ByIndex(secretIndex, namespace+"/"+name)
	for _, obj := range volumes {
		if g.claimed(node, obj.(*corev1.PersistentVolume)) {
			return true
		}
	}
	return false
}

// volume reports whether a pod on the node claims a persistent volume.
func (g *graph) volume(node, name string) bool {
	if g.volumes == nil {
		return false
	}
	obj, found, _ := g.volumes.GetByKey(name)
	return found && g.claimed(node, obj.(*corev1.PersistentVolume))
}

// claimed reports whether a pod on the node uses the claim that a persistent volume is bound to.
func (g *graph) claimed(node string, pv *corev1.PersistentVolume) bool {
	claim := pv.Spec.ClaimRef
	return claim != nil && g.byPod(node, claimKind, claim.Namespace, claim.Name)
}

func (g *graph) attachment(node, name string) bool {
	if g.sources.VolumeAttachments == nil {
		return false
	}
	attachment, err := g.sources.VolumeAttachments.Lister().Get(name)
	return err == nil && attachment.Spec.NodeName == node
}

func (g *graph) slice(node, name string) bool {
	if g.sources.ResourceSlice == nil {
		return false
	}
	slice, err := g.sources.ResourceSlice(name)
	return err == nil && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node
}

func (g *graph) certificateRequest(node, namespace, name string) bool {
	if g.sources.PodCertificateRequests == nil {
		return false
	}
	request, err := g.sources.PodCertificateRequests.Lister().PodCertificateRequests(namespace).Get(name)
	return err == nil && string(request.Spec.NodeName) == node
}
