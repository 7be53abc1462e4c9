// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Each function in this file decides about requests for one kind of object, and returns the reason
// of a refusal. It calls reached last, because that is a lookup.

// get decides about objects that a node may only get by name.
func get(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	if request.GetVerb() != "get" {
		return false, "can only get individual resources of this type"
	}
	if request.GetSubresource() != "" {
		return false, "cannot get subresource"
	}
	return related(node, request, reached)
}

// read decides about objects that a node may get or watch by name.
func read(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	switch {
	case !verb(request, "get", "list", "watch"):
		return false, "can only read resources of this type"
	case request.GetSubresource() != "":
		return false, "cannot read subresource"
	case request.GetNamespace() == "":
		return false, "can only read namespaced object of this type"
	default:
		return related(node, request, reached)
	}
}

// claim decides about PersistentVolumeClaims, whose status reports the progress of a resize on the
// node.
func claim(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	if request.GetSubresource() != "status" {
		return get(node, request, reached)
	}
	if !verb(request, "update", "patch") {
		return false, "can only get/update/patch this type"
	}
	return related(node, request, reached)
}

// serviceAccount decides about the service accounts of pods, and their tokens.
func serviceAccount(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	if request.GetVerb() == "get" && request.GetSubresource() == "" {
		return read(node, request, reached)
	}
	if request.GetVerb() != "create" || request.GetName() == "" {
		return false, "can only create tokens for individual service accounts"
	}
	if request.GetSubresource() != "token" {
		return false, "can only create token subresource of serviceaccount"
	}
	return related(node, request, reached)
}

// lease decides about the node's heartbeat. The name of a create is not known here; NodeRestriction
// checks it.
func lease(node string, request authorizer.Attributes) (bool, string) {
	switch {
	case !verb(request, "get", "create", "update", "patch", "delete"):
		return false, "can only get, create, update, patch, or delete a node lease"
	case request.GetNamespace() != corev1.NamespaceNodeLease:
		return false, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case request.GetVerb() != "create" && request.GetName() != node:
		return false, "can only access node lease with the same name as the requesting node"
	default:
		return true, ""
	}
}

func csiNode(node string, request authorizer.Attributes) (bool, string) {
	switch {
	case request.GetSubresource() != "":
		return false, "cannot authorize CSINode subresources"
	case !verb(request, "get", "create", "update", "patch", "delete"):
		return false, "can only get, create, update, patch, or delete a CSINode"
	case request.GetVerb() != "create" && request.GetName() != node:
		return false, "can only access CSINode with the same name as the requesting node"
	default:
		return true, ""
	}
}

func resourceSlice(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	if request.GetSubresource() != "" {
		return false, "cannot authorize ResourceSlice subresources"
	}
	switch request.GetVerb() {
	case "create":
		return true, ""
	case "get", "update", "patch", "delete":
		return related(node, request, reached)
	case "watch", "list", "deletecollection":
		if selects(request, resourcev1.ResourceSliceSelectorNodeName, node) {
			return true, ""
		}
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	default:
		return false, "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
	}
}

func certificateRequest(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	if request.GetSubresource() != "" {
		return false, "nodes may not access the status subresource of PodCertificateRequests"
	}
	switch request.GetVerb() {
	case "create":
		return true, ""
	case "get":
		return related(node, request, reached)
	case "list", "watch":
		if selects(request, "spec.nodeName", node) {
			return true, ""
		}
		return false, "can only list/watch podcertificaterequests with nodeName field selector"
	default:
		return false, fmt.Sprintf("nodes may not %s podcertificaterequests", request.GetVerb())
	}
}

// nodeObject decides about Nodes. It compares the name without a lookup, so that a node can get its
// own object before it exists.
func nodeObject(node string, request authorizer.Attributes) (bool, string) {
	switch request.GetSubresource() {
	case "":
		if verb(request, "create", "update", "patch") {
			return true, ""
		}
		if !verb(request, "get", "list", "watch") {
			return false, ""
		}
		switch request.GetName() {
		case node:
			return true, ""
		case "":
			return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
		default:
			return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, request.GetName())
		}
	case "status":
		return verb(request, "update", "patch"), ""
	default:
		return false, ""
	}
}

func pod(node string, request authorizer.Attributes, reached func() bool) (bool, string) {
	switch request.GetSubresource() {
	case "":
		switch request.GetVerb() {
		case "get":
			return related(node, request, reached)
		case "list", "watch":
			if selects(request, "spec.nodeName", node) {
				return true, ""
			}
			if request.GetName() != "" {
				return related(node, request, reached)
			}
			return false, "can only list/watch pods with spec.nodeName field selector"
		default:
			// Mirror pods; NodeRestriction refuses other pods.
			return verb(request, "create", "delete"), ""
		}
	case "status":
		return verb(request, "update", "patch"), ""
	case "eviction":
		return verb(request, "create"), ""
	default:
		return false, ""
	}
}

func verb(request authorizer.Attributes, verbs ...string) bool {
	return slices.Contains(verbs, request.GetVerb())
}
