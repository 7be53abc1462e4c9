// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
)

// needs estimates how much memory requests need. The estimates are on the high side. They matter only
// near the memory limit.
type needs struct {
	// stats returns the number and the average size of a resource's objects in the store.
	stats func(ctx context.Context, resource schema.GroupResource) (storage.Stats, error)
	// maxBody is the maximum size of a body, in bytes.
	maxBody int64
}

// Memory that requests need, in bytes.
const (
	// smallNeed is the need below which a request is always served.
	smallNeed = 64 << 10
	// watchNeed is for the goroutines, buffers and stream of a watch.
	watchNeed = 64 << 10
	// listItem is for an item of a list from the watch cache: a shallow copy, since the list is encoded
	// item by item.
	listItem = 1 << 10
	// tableRow is for a row of a Table, which is encoded as a whole.
	tableRow = 4 << 10
	// unknownSize is the size in the store of an object whose resource has no watch cache, such as an event.
	unknownSize = 2 << 10
	// initialEvent is for each existing object that a watch begins with.
	initialEvent = 256
)

// Memory that requests need, as a multiple of the size of the stored object or of the body.
const (
	// decodedSize is for an object that is read from the store.
	decodedSize = 3
	// yamlSize is for an object in a YAML list, which is first encoded as JSON.
	yamlSize = 6
	// bodySize is for a body that is decoded, validated, compared and encoded again.
	bodySize = 8
)

// listGarbage is which part of its size a list makes garbage faster than Go collects it: several large lists at once fill the memory that is
// free otherwise, because collections near the limit take half of the processor time at most.
const listGarbage = 8

// of returns how many bytes of memory a request needs, or 0 if that is less than smallNeed.
func (n needs) of(info *request.RequestInfo, r *http.Request) int64 {
	if !info.IsResourceRequest {
		return 0
	}
	var need int64
	switch info.Verb {
	case "list":
		need = n.ofList(info, r)
	case "watch":
		need = n.ofWatch(r.Context(), info, r.URL.Query())
	case "create", "update", "patch":
		need = bodySize * n.body(r)
	}
	if need < smallNeed {
		return 0
	}
	return need
}

func (n needs) body(r *http.Request) int64 {
	if r.ContentLength < 0 { // unknown
		return n.maxBody
	}
	return min(r.ContentLength, n.maxBody)
}

func (n needs) ofList(info *request.RequestInfo, r *http.Request) int64 {
	options, valid := listOptions(r.URL.Query())
	if !valid || info.Name != "" { // a field selector with the name
		return 0
	}
	stats := n.statsOf(r.Context(), info)
	items := stats.ObjectCount
	if options.Limit > 0 {
		items = min(items, options.Limit)
	}
	accept := r.Header.Get("Accept")
	item := int64(listItem)
	if strings.Contains(accept, "as=Table") {
		item = tableRow
	}
	item += stats.EstimatedAverageObjectSizeBytes / listGarbage
	if strings.Contains(accept, "yaml") {
		item += yamlSize * stats.EstimatedAverageObjectSizeBytes
	}
	if fromStore(options) {
		item += decodedSize * stats.EstimatedAverageObjectSizeBytes
	}
	return items * item
}

func (n needs) ofWatch(ctx context.Context, info *request.RequestInfo, query url.Values) int64 {
	options, valid := listOptions(query)
	if !valid {
		return 0
	}
	// Without a resource version, a watch begins with the existing objects.
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents || options.ResourceVersion == "" || options.ResourceVersion == "0"
	if !initial || info.Name != "" {
		return watchNeed
	}
	return watchNeed + initialEvent*n.statsOf(ctx, info).ObjectCount
}

// statsOf returns zeros for resources that this server does not store.
func (n needs) statsOf(ctx context.Context, info *request.RequestInfo) storage.Stats {
	stats, err := n.stats(ctx, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	if err != nil {
		return storage.Stats{}
	}
	if stats.EstimatedAverageObjectSizeBytes == 0 {
		stats.EstimatedAverageObjectSizeBytes = unknownSize
	}
	return stats
}

func listOptions(query url.Values) (options metav1.ListOptions, valid bool) {
	err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &options, nil)
	return options, err == nil
}

// fromStore reports whether the objects of a list are read from the store and not from the cache.
func fromStore(options metav1.ListOptions) bool {
	result, err := delegator.ShouldDelegateListMeta(&options, delegator.CacheWithoutSnapshots{})
	return err != nil || result.ShouldDelegate
}
