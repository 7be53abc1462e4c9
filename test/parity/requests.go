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

// options narrow a run.
type options struct {
	seed uint64
	// n is how many mutations of a kind are tried on creation; half as many more on
	// updates and patches, and a quarter on each subresource.
	n int
}

// trial is one kind's run: what it has sent so far.
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
	// blocked counts the manifests that Kindred alone refuses.
	blocked int
}

const (
	dryRun = "dryRun=All"
	strict = "fieldValidation=Strict"
)

// try runs one kind through all its requests. The seed and the kind's name alone decide
// what they are, so that a narrower run sends the same.
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

// same is a pair of equal requests.
func same(what string, r request) pair { return pair{What: what, Both: r, Ours: r} }

// run sends pairs, numbered, and keeps what came of them.
func (t *trial) run(ctx context.Context, pairs ...pair) ([]outcome, error) {
	for i := range pairs {
		pairs[i].ID = fmt.Sprintf("%s#%d", t.resource, len(t.outcomes)+i+1)
	}
	outcomes, err := t.all(ctx, pairs)
	t.outcomes = append(t.outcomes, outcomes...)
	return outcomes, err
}

// query joins parameters to a path.
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

// validation is how strictly a mutation asks to be read: always strictly if that is what
// it is about.
func (t *trial) validation(m mutation) string {
	if m.unknown() || t.random.IntN(4) == 0 {
		return strict
	}
	return ""
}

// creations tries to create each variant and its mutations, without doing so.
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

// upserts are the ways to create an object under its own name: most kinds let an apply do
// so, and hardly any a PUT.
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

// share is the i-th of k parts of n.
func share(n, k, i int) int { return n*(i+1)/k - n*i/k }

// keepsNoStatus is whether a new object's status is thrown away unread.
func (t *trial) keepsNoStatus() bool {
	_, found := t.resource.subresources["status"]
	return found
}

// stored is an object that both servers have.
type stored struct {
	manifest
	// path is where it is; upstream and kindred are what is there.
	path              string
	upstream, kindred map[string]any
	names             aliases
}

// make creates an object, gives it its status, and looks at it as kubectl would. It is
// nil if one of the servers does not have it then.
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

// same is a pair of equal requests about a stored object.
func (o *stored) same(what string, r request) pair {
	return pair{What: what, Both: r, Ours: r, names: o.names}
}

const (
	// calm is how long a stored object must not have changed, and patience how often it
	// is looked at until then: parts of the servers themselves act on a few kinds (the
	// names of a CustomResourceDefinition, the availability of an APIService).
	calm     = 40 * time.Millisecond
	patience = 50
)

// refresh reads what both servers have stored, once it rests.
func (t *trial) refresh(ctx context.Context, o *stored) error {
	var before []string
	for range patience {
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

// pause is longer for the kinds that the servers work at.
func (t *trial) pause() time.Duration {
	if t.resource.group() == "apiextensions" || t.resource.group() == "apiregistration" {
		return 10 * calm
	}
	return calm
}

func version(object map[string]any) string {
	text, _ := lookup(object, path{"metadata", "resourceVersion"})
	return fmt.Sprint(text)
}

// table asks for what kubectl get shows of an object.
func (t *trial) table(o *stored) pair {
	p := o.same("table of "+o.name(), request{Method: http.MethodGet, Path: o.path, Accept: acceptTable})
	p.aspect = aspectTable
	return p
}

// labels are fields that some kind can be selected by; those of other kinds are refused.
var labels = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.host", "spec.unschedulable", "spec.restartPolicy",
	"spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "spec.type", "spec.clusterIP", "spec.signerName", "status.phase", "status.podIP", "status.podIPs",
	"status.nominatedNodeName", "status.replicas", "status.successful", "type", "reason", "source", "reportingComponent", "reportingController",
	"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "involvedObject.fieldPath", "regarding.kind", "spec.group", "spec.names.kind", "bogus",
}

// selections lists by field selectors.
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

// deletions deletes the objects: in vain, tentatively, and for good.
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
