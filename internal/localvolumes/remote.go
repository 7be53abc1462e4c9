// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localvolumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/rest"
)

const (
	// Path is where the agent of a node serves its disk.
	Path = "/kindred/volumes/"
	// Annotation is on nodes whose agents do.
	Annotation = "kindred.dev/local-volumes"
)

// order is what is asked of the disk of another machine.
type order struct {
	Volume Volume   `json:"volume,omitzero"`
	Exist  []string `json:"exist,omitempty"`
	Wanted []string `json:"wanted,omitempty"`
}

// answer is what it answers.
type answer struct {
	Made  Made   `json:"made,omitzero"`
	Error string `json:"error,omitempty"`
}

// remote is the disk of another node.
type remote struct {
	client rest.Interface
	node   string
}

// Remote returns the disk of a node, which is reached by a client of the core API.
func Remote(client rest.Interface, node string) Disk { return remote{client, node} }

// Make implements Disk.
func (r remote) Make(ctx context.Context, v Volume) (Made, error) {
	return r.ask(ctx, "make", order{Volume: v})
}

// Keep implements Disk.
func (r remote) Keep(ctx context.Context, name string) error {
	_, err := r.ask(ctx, "keep", order{Volume: Volume{Name: name}})
	return err
}

// Expand implements Disk.
func (r remote) Expand(ctx context.Context, v Volume) error {
	_, err := r.ask(ctx, "expand", order{Volume: v})
	return err
}

// Remove implements Disk.
func (r remote) Remove(ctx context.Context, v Volume) error {
	_, err := r.ask(ctx, "remove", order{Volume: v})
	return err
}

// Sweep implements Disk.
func (r remote) Sweep(ctx context.Context, exist, wanted []string) error {
	_, err := r.ask(ctx, "sweep", order{Exist: exist, Wanted: wanted})
	return err
}

// ask makes a request to the agent of the node.
func (r remote) ask(ctx context.Context, verb string, o order) (Made, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return Made{}, err
	}
	request := r.client.Post().Resource("nodes").Name(r.node).SubResource("proxy").Suffix(Path, verb)
	response, err := request.SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return Made{}, fmt.Errorf("node %s, which has the volume: %w", r.node, err)
	}
	var a answer
	if err := json.Unmarshal(response, &a); err != nil {
		return Made{}, fmt.Errorf("node %s, which has the volume: %w", r.node, err)
	}
	if a.Error != "" {
		return Made{}, errors.New(a.Error)
	}
	return a.Made, nil
}

// maxOrder limits the size of an order, in bytes: the names of some ten thousand volumes.
const maxOrder = 1 << 20

// Handler serves the disk of this machine below Path, to clients that may do with the node whatever they want.
func Handler(d Disk) http.Handler {
	mux := http.NewServeMux()
	for verb, do := range map[string]func(context.Context, order) (Made, error){
		"make":   func(ctx context.Context, o order) (Made, error) { return d.Make(ctx, o.Volume) },
		"keep":   func(ctx context.Context, o order) (Made, error) { return Made{}, d.Keep(ctx, o.Volume.Name) },
		"expand": func(ctx context.Context, o order) (Made, error) { return Made{}, d.Expand(ctx, o.Volume) },
		"remove": func(ctx context.Context, o order) (Made, error) { return Made{}, d.Remove(ctx, o.Volume) },
	} {
		mux.HandleFunc("POST "+Path+verb, serve(func(ctx context.Context, o order) (Made, error) {
			if filepath.Base(o.Volume.Name) != o.Volume.Name || !filepath.IsLocal(o.Volume.Name) || o.Volume.Name == "." {
				return Made{}, fmt.Errorf("%q is not the name of a volume", o.Volume.Name)
			}
			return do(ctx, o)
		}))
	}
	mux.HandleFunc("POST "+Path+"sweep", serve(func(ctx context.Context, o order) (Made, error) {
		return Made{}, d.Sweep(ctx, o.Exist, o.Wanted)
	}))
	return mux
}

func serve(do func(context.Context, order) (Made, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder)).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var a answer
		made, err := do(r.Context(), o)
		if a.Made = made; err != nil {
			a.Error = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // the client may be gone
	}
}
