// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// options limit a run.
type options struct {
	seed uint64
	// n is the number of mutations of a kind on creation. Updates and patches get half as many, and
	// each subresource a quarter.
	n int
}

// trial is the run of one kind, with all outcomes so far.
type trial struct {
	sides
	options
	schemas   *schemas
	resource  *resource
	schema    *schemaNode
	random    *rand.Rand
	variants  []manifest
	bodies    []manifest
	outcomes  []outcome
	complaint []string
	// blocked counts the manifests that only Kindred refuses.
	blocked int
}

const (
	dryRun = "dryRun=All"
	strict = "fieldValidation=Strict"
)

// try sends all requests for one kind. They depend only on the seed and the kind's name, so that a
// narrower run sends the same ones.
func try(ctx context.Context, s sides, o options, all *schemas, r *resource, manifests []manifest) (*trial, error) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(r.String()))
	t := &trial{sides: s, options: o, schemas: all, resource: r, random: rand.New(rand.NewPCG(o.seed, hash.Sum64()))}
	t.variants, t.bodies = of(manifests, r)
	var err error
	if t.schema, err = all.of(ctx, r.gv, r.gvk()); err != nil || t.schema == nil {
		return t, err
	}
	if err := t.creations(ctx); err != nil {
		return t, err
	}
	if !r.serves("get") {
		return t, nil
	}
	var made []*stored
	for _, v := range t.variants {
		object, err := t.make(ctx, v)
		if err != nil {
			return t, err
		}
		if object != nil {
			made = append(made, object)
		}
	}
	if err := t.selections(ctx); err != nil {
		return t, err
	}
	for _, object := range made {
		if err := t.changes(ctx, object, len(made)); err != nil {
			return t, err
		}
	}
	return t, t.deletions(ctx, made)
}

// same returns a pair of equal requests.
func same(what string, r request) pair { return pair{What: what, Both: r, Ours: r} }

// run numbers and sends pairs, and records the outcomes.
func (t *trial) run(ctx context.Context, pairs ...pair) ([]outcome, error) {
	for i := range pairs {
		pairs[i].ID = fmt.Sprintf("%s#%d", t.resource, len(t.outcomes)+i+1)
	}
	outcomes, err := t.all(ctx, pairs)
	t.outcomes = append(t.outcomes, outcomes...)
	return outcomes, err
}

// query adds parameters to a path.
func query(path string, parameters ...string) string {
	separator := "?"
	for _, p := range parameters {
		if p != "" {
			path += separator + p
			separator = "&"
		}
	}
	return path
}

// validation returns the field validation of a mutation: always strict if the mutation sets an
// unknown field.
func (t *trial) validation(m mutation) string {
	if m.unknown() || t.random.IntN(4) == 0 {
		return strict
	}
	return ""
}

// creations sends dry-run creates of each variant and its mutations.
func (t *trial) creations(ctx context.Context) error {
	if !t.resource.serves("create") {
		return nil
	}
	var pairs []pair
	for i, v := range t.variants {
		where := t.resource.collection(v.namespace())
		pairs = append(pairs, same("create "+v.name(), post(query(where, dryRun), v.object)))
		pairs = append(pairs, t.upserts(v)...)
		changes := t.schemas.mutations(t.schema, v.object, func(p path) bool { return p[0] == "status" && t.keepsNoStatus() })
		for _, m := range sample(changes, share(t.n, len(t.variants), i), t.random) {
			object, ok := m.apply(runtime.DeepCopyJSON(v.object))
			if ok {
				pairs = append(pairs, same("create "+v.name()+" with "+m.String(), post(query(where, dryRun, t.validation(m)), object)))
			}
		}
	}
	_, err := t.run(ctx, pairs...)
	return err
}

// upserts are requests that create an object under its own name: most kinds allow it by apply, and
// hardly any by PUT.
func (t *trial) upserts(v manifest) []pair {
	where := t.resource.collection(v.namespace()) + "/" + v.name()
	body := encode(v.object)
	var pairs []pair
	if t.resource.serves("patch") {
		pairs = append(pairs, same("apply new "+v.name(), request{http.MethodPatch, query(where, dryRun, "fieldManager=applier"), contentApply, "", body}),
			same("merge patch of missing "+v.name(), request{http.MethodPatch, query(where, dryRun), contentMerge, "", body}))
	}
	if t.resource.serves("update") {
		pairs = append(pairs, same("update missing "+v.name(), request{http.MethodPut, query(where, dryRun), contentJSON, "", body}))
	}
	return pairs
}

// share returns the i-th of k parts of n.
func share(n, k, i int) int { return n*(i+1)/k - n*i/k }

// keepsNoStatus reports whether the server ignores the status of a new object.
func (t *trial) keepsNoStatus() bool {
	_, found := t.resource.subresources["status"]
	return found
}

// stored is an object that both servers have stored.
type stored struct {
	manifest
	// path is the object's path; upstream and kindred are the stored states.
	path              string
	upstream, kindred map[string]any
	names             aliases
}

// make creates an object with its status, and reads it as kubectl does. It returns nil unless both
// servers have stored it.
func (t *trial) make(ctx context.Context, m manifest) (*stored, error) {
	collection := t.resource.collection(m.namespace())
	outcomes, err := t.run(ctx, same("really create "+m.name(), post(collection, m.object)))
	if err != nil {
		return nil, err
	}
	if code := outcomes[0].Upstream.Code; code != http.StatusCreated {
		t.complaint = append(t.complaint, fmt.Sprintf("upstream refuses manifest %s: %d %s", m.name(), code, outcomes[0].Upstream.raw))
		return nil, nil
	}
	if code := outcomes[0].Kindred.Code; code != http.StatusCreated {
		t.blocked++
		t.complaint = append(t.complaint, fmt.Sprintf("kindred refuses manifest %s: %d %s", m.name(), code, outcomes[0].Kindred.raw))
		return nil, nil
	}
	object := &stored{manifest: m, path: collection + "/" + m.name()}
	if err := t.refresh(ctx, object); err != nil {
		return nil, err
	}
	if _, err := t.run(ctx, same("create again "+m.name(), post(collection, m.object)), t.table(object)); err != nil {
		return nil, err
	}
	status, found := m.object["status"]
	if _, served := t.resource.subresources["status"]; !found || !served {
		return object, nil
	}
	patch := request{Method: http.MethodPatch, Path: object.path + "/status", ContentType: contentMerge, Body: encode(map[string]any{"status": status})}
	if _, err := t.run(ctx, object.same("status of "+m.name(), patch)); err != nil {
		return nil, err
	}
	if err := t.refresh(ctx, object); err != nil {
		return nil, err
	}
	_, err = t.run(ctx, t.table(object))
	return object, err
}

// same returns a pair of equal requests for a stored object.
func (o *stored) same(what string, r request) pair {
	return pair{What: what, Both: r, Ours: r, names: o.names}
}

const (
	// settleTime is the time that a stored object must not have changed, and maxReads how often it is read
	// until then: the servers themselves change a few kinds (the names of a
	// CustomResourceDefinition, the availability of an APIService).
	settleTime = 40 * time.Millisecond
	maxReads   = 50
)

// refresh reads the object from both servers once it no longer changes.
func (t *trial) refresh(ctx context.Context, o *stored) error {
	var before []string
	for range maxReads {
		outcomes, err := t.all(ctx, []pair{o.same("get", request{Method: http.MethodGet, Path: o.path})})
		if err != nil {
			return err
		}
		o.upstream, o.kindred = outcomes[0].Upstream.Object, outcomes[0].Kindred.Object
		versions := []string{version(o.upstream), version(o.kindred)}
		if slices.Equal(versions, before) {
			break
		}
		before = versions
		select {
		case <-time.After(t.pause()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.names = aliases{}
	o.names.learn(o.upstream, o.kindred)
	return nil
}

// pause is longer for kinds that the servers change.
func (t *trial) pause() time.Duration {
	if t.resource.group() == "apiextensions" || t.resource.group() == "apiregistration" {
		return 10 * settleTime
	}
	return settleTime
}

func version(object map[string]any) string {
	text, _ := lookup(object, path{"metadata", "resourceVersion"})
	return fmt.Sprint(text)
}

// table requests the object as kubectl get does.
func (t *trial) table(o *stored) pair {
	p := o.same("table of "+o.name(), request{Method: http.MethodGet, Path: o.path, Accept: acceptTable})
	p.aspect = aspectTable
	return p
}

// labels are field labels that some kind supports; other kinds refuse them.
var labels = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.host", "spec.unschedulable", "spec.restartPolicy",
	"spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "spec.type", "spec.clusterIP", "spec.signerName", "status.phase", "status.podIP", "status.podIPs",
	"status.nominatedNodeName", "status.replicas", "status.successful", "type", "reason", "source", "reportingComponent", "reportingController",
	"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "involvedObject.fieldPath", "regarding.kind", "spec.group", "spec.names.kind", "bogus",
}

// selections lists objects by field selectors.
func (t *trial) selections(ctx context.Context) error {
	if !t.resource.serves("list") {
		return nil
	}
	collection := t.resource.collection(namespace)
	var pairs []pair
	for _, label := range labels {
		p := same("list by "+label, request{Method: http.MethodGet, Path: query(collection, "fieldSelector="+url.QueryEscape(label+"=none"))})
		p.codeOnly = true
		pairs = append(pairs, p)
	}
	if t.resource.serves("deletecollection") {
		p := same("delete a collection", request{Method: http.MethodDelete, Path: query(collection, dryRun, "labelSelector=parity=nobody")})
		p.codeOnly = true
		pairs = append(pairs, p)
	}
	_, err := t.run(ctx, pairs...)
	return err
}

// deletions deletes the objects: with failing preconditions, as a dry run, and for real.
func (t *trial) deletions(ctx context.Context, made []*stored) error {
	if !t.resource.serves("delete") {
		return nil
	}
	tries := []map[string]any{
		{"propagationPolicy": "Bogus"}, {"propagationPolicy": "Foreground"}, {"propagationPolicy": "Orphan"}, {"orphanDependents": true},
		{"gracePeriodSeconds": int64(-1)}, {"gracePeriodSeconds": int64(0)}, {"gracePeriodSeconds": int64(7)}, {"preconditions": map[string]any{"uid": "other"}},
		{"preconditions": map[string]any{"resourceVersion": "1"}}, {"orphanDependents": true, "propagationPolicy": "Background"}, {unknownField: true},
	}
	for _, o := range made {
		var pairs []pair
		for _, try := range tries {
			body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": []any{"All"}}
			for k, v := range try {
				body[k] = v
			}
			pairs = append(pairs, o.same("delete "+o.name()+" with "+short(try),
				request{Method: http.MethodDelete, Path: o.path, ContentType: contentJSON, Body: encode(body)}))
		}
		if _, err := t.run(ctx, pairs...); err != nil {
			return err
		}
		if _, err := t.run(ctx, o.same("really delete "+o.name(), request{Method: http.MethodDelete, Path: o.path})); err != nil {
			return err
		}
	}
	_, err := t.run(ctx, same("get what is not there", request{Method: http.MethodGet, Path: t.resource.collection(namespace) + "/not-there"}),
		same("delete what is not there", request{Method: http.MethodDelete, Path: t.resource.collection(namespace) + "/not-there"}))
	return err
}
