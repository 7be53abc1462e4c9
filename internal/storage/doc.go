// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage stores every API object in etcd, embedded in the process or external.
//
// [Embedded] and [External.Connect] return a [Backend]: one etcd client that all resources
// share, with one compactor and one health check. Each resource opens a stack of layers on it
// (stack.go). A request enters at the top; a watch event rises from the bottom.
//
//	API request, watch                   one stack for each resource: storage.Interface
//	    |
//	lazyCache                            opens the layers from here to ownStream with the
//	    |                                first list or watch, for custom resources
//	watchBuffer                          buffers the events of slow watches, and reports
//	    |                                to the eventThrottle how far each watch has come
//	awaitedCache                         makes the server's own lists wait for the watch cache
//	    |
//	cacher (k8s.io/apiserver)            the watch cache
//	    |
//	eventThrottle                        delays events while watches are behind, and lets
//	    |                                versions of a custom object share what is equal
//	    |
//	ownStream                            watches the resource on a stream of its own
//	    |
//	deletions                            records deletions; deletes an object of a known
//	    |                                version in one transaction
//	etcd3 (k8s.io/apiserver)             encodes, encrypts, decodes
//	    |
//	    +------------------------------  one client for all resources: kubernetes.Interface
//	    |
//	readWindow                           refuses revisions that the API no longer serves
//	    |
//	recordWriter                         adds deletion records and fences to transactions
//	    |
//	etcd client
//
// Why in this order:
//
//   - lazyCache is above all layers that a cache needs, so that requests bypass them until there is one.
//   - watchBuffer is above the watch cache, because the cache ends a watch that does not take
//     its events at once, and the buffer takes them.
//   - awaitedCache is right above the watch cache, which it asks whether it is filled.
//   - eventThrottle is right below the watch cache, because it can delay an event only before the cache has
//     it. Lists and watches that bypass the cache bypass the throttle too.
//   - deletions is below the cache, which hands it a copy of the cached object, and above
//     etcd3, because etcd3 knows neither the caller nor whether an update begins a deletion.
//   - ownStream is below the cache and not above deletions, because only the cache requests
//     progress notifications, and etcd sends them to all watches of a stream.
//   - readWindow and recordWriter are below etcd3, because they act on etcd's revisions and
//     transactions, which no layer above etcd3 sees.
//
// Resources without a watch cache (see uncached) have neither lazyCache, watchBuffer,
// awaitedCache, eventThrottle nor ownStream.
//
// watchBuffer and eventThrottle share one backpressure value for each resource. deletions
// hands a record to recordWriter as an argument where it deletes by itself. Where etcd3 is
// between the two, the record is in the context: storage.Interface and kubernetes.Interface
// have no parameter for it.
//
// Beside the stack, [History] reads past states, the compactor removes them, and
// [Backend.Records] holds the records of deletions and undeletions. Package check
// verifies the files of an embedded store before etcd opens them.
package storage
