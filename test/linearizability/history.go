// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package linearizability

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// History is what clients asked for, and what they got, by object. The zero value is ready to use.
type History struct {
	mu      sync.Mutex
	began   time.Time
	objects map[string][]porcupine.Operation
}

// Do records a request of a client for an object, while ask performs it. Clients are numbered from 0.
func (h *History) Do(client int, object string, r Request, ask func() Answer) {
	call := h.now()
	answer := ask()
	done := h.now()
	switch {
	case answer.Outcome == Unsent, answer.Outcome == Unknown && r.Kind == Read:
		return // tells nothing
	case answer.Outcome != Unknown:
	default:
		done = math.MaxInt64 // it may have its effect at any time after the call
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[object] = append(h.objects[object], porcupine.Operation{ClientId: client, Input: r, Call: call, Output: answer, Return: done})
}

// now returns the monotonic time since the first request, in nanoseconds.
func (h *History) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.objects == nil {
		h.began, h.objects = time.Now(), map[string][]porcupine.Operation{}
	}
	return int64(time.Since(h.began))
}

// Counts returns how many requests were recorded, and of how many the outcome is unknown.
func (h *History) Counts() (all, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, operations := range h.objects {
		all += len(operations)
		for _, o := range operations {
			if o.Output.(Answer).Outcome == Unknown {
				unknown++
			}
		}
	}
	return all, unknown
}

// Check returns an error that names the objects for whose answers no order of the requests exists, and a page in dir for each that shows
// how far an order goes. A history that takes longer than limit to check is an error too.
func (h *History) Check(limit time.Duration, dir string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		// A write without an answer may have had no effect. If the others fit without it, the search is short: each such write that
		// is left doubles it.
		if porcupine.CheckOperationsTimeout(model, seen(h.objects[name]), limit) == porcupine.Ok {
			continue
		}
		result, info := porcupine.CheckOperationsVerbose(model, h.objects[name], limit)
		if result == porcupine.Ok {
			continue
		}
		page, err := visualize(info, filepath.Join(dir, name+".html"))
		if err != nil {
			return err
		}
		if result == porcupine.Unknown {
			return fmt.Errorf("%s: the %d requests were not checked within %v; see %s", name, len(h.objects[name]), limit, page)
		}
		return fmt.Errorf("%s: no order of the %d requests explains all answers; see %s", name, len(h.objects[name]), page)
	}
	return nil
}

// seen returns a history without the writes that have no answer and whose values no answer shows.
func seen(operations []porcupine.Operation) (rest []porcupine.Operation) {
	values := map[string]bool{}
	for _, o := range operations {
		values[o.Input.(Request).Expected] = true
		values[o.Output.(Answer).Value] = true
	}
	for _, o := range operations {
		if o.Output.(Answer).Outcome != Unknown || o.Input.(Request).Kind != Delete && values[o.Input.(Request).Value] {
			rest = append(rest, o)
		}
	}
	return rest
}

func visualize(info porcupine.LinearizationInfo, file string) (string, error) {
	page, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer page.Close()
	return file, porcupine.Visualize(model, info, page)
}
