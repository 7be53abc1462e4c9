// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package linearizability

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"
)

func TestStep(t *testing.T) {
	for _, c := range []struct {
		state   string
		request Request
		answer  Answer
		want    []string
	}{
		{"a", Request{Kind: Read}, Answer{Done, "a"}, []string{"a"}},
		{"a", Request{Kind: Read}, Answer{Done, "b"}, nil},
		{"", Request{Kind: Read}, Answer{Done, ""}, []string{""}},
		{"", Request{Kind: Create, Value: "a"}, Answer{Outcome: Done}, []string{"a"}},
		{"x", Request{Kind: Create, Value: "a"}, Answer{Outcome: Done}, nil},
		{"x", Request{Kind: Create, Value: "a"}, Answer{Outcome: Refused}, []string{"x"}},
		{"", Request{Kind: Create, Value: "a"}, Answer{Outcome: Refused}, nil},
		{"", Request{Kind: Create, Value: "a"}, Answer{Outcome: Unknown}, []string{"", "a"}},
		{"x", Request{Kind: Create, Value: "a"}, Answer{Outcome: Unknown}, []string{"x"}},
		{"x", Request{Kind: Put, Value: "a"}, Answer{Outcome: Done}, []string{"a"}},
		{"", Request{Kind: Put, Value: "a"}, Answer{Outcome: Done}, nil},
		{"", Request{Kind: Put, Value: "a"}, Answer{Outcome: Refused}, []string{""}},
		{"x", Request{Kind: Put, Value: "a"}, Answer{Outcome: Refused}, nil},
		{"x", Request{Swap, "a", "x"}, Answer{Outcome: Done}, []string{"a"}},
		{"y", Request{Swap, "a", "x"}, Answer{Outcome: Done}, nil},
		{"y", Request{Swap, "a", "x"}, Answer{Outcome: Refused}, []string{"y"}},
		{"x", Request{Swap, "a", "x"}, Answer{Outcome: Refused}, nil},
		{"x", Request{Swap, "a", "x"}, Answer{Outcome: Unknown}, []string{"x", "a"}},
		{"x", Request{Kind: Delete}, Answer{Outcome: Done}, []string{""}},
		{"", Request{Kind: Delete}, Answer{Outcome: Refused}, []string{""}},
		{"", Request{Kind: Delete}, Answer{Outcome: Done}, nil},
	} {
		if got := step(c.state, c.request, c.answer); !slices.Equal(got, c.want) {
			t.Errorf("%s of %q: %q, want %q", describe(c.request, c.answer), c.state, got, c.want)
		}
	}
}

// register is a correct server of one object.
type register struct {
	mu    sync.Mutex
	value string
}

func (r *register) ask(q Request) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Kind == Read {
		return Answer{Done, r.value}
	}
	if !q.accepts(r.value) {
		return Answer{Outcome: Refused}
	}
	r.value = q.Value
	return Answer{Outcome: Done}
}

func randomRequest(random *rand.Rand, value, last string) Request {
	return []Request{{Kind: Read}, {Kind: Create, Value: value}, {Kind: Put, Value: value}, {Swap, value, last}, {Kind: Delete}}[random.IntN(5)]
}

// TestCorrectServers: histories of a correct server are accepted, also if answers are lost, before or after their effect.
func TestCorrectServers(t *testing.T) {
	var h History
	var clients sync.WaitGroup
	objects := []*register{{}, {}}
	for client := range 4 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(client)))
			last := ""
			for n := range 300 {
				i := random.IntN(len(objects))
				q := randomRequest(random, fmt.Sprintf("%d-%d", client, n), last)
				h.Do(client, fmt.Sprint(i), q, func() Answer {
					lost := random.IntN(60)
					if lost == 0 {
						return Answer{Outcome: Unknown}
					}
					a := objects[i].ask(q)
					if lost == 1 {
						return Answer{Outcome: Unknown}
					}
					if q.Kind == Read {
						last = a.Value
					}
					return a
				})
			}
		})
	}
	clients.Wait()
	if err := h.Check(time.Minute, t.TempDir()); err != nil {
		t.Error(err)
	}
	if all, unknown := h.Counts(); all < 1000 || unknown == 0 || unknown > all/10 {
		t.Errorf("%d requests, %d unknown", all, unknown)
	}
}

// at is an operation between two moments.
func at(call, done int64, r Request, a Answer) porcupine.Operation {
	return porcupine.Operation{Input: r, Call: call, Output: a, Return: done}
}

// TestViolations: what a faulty server does is found.
func TestViolations(t *testing.T) {
	created := at(0, 1, Request{Kind: Create, Value: "a"}, Answer{Outcome: Done})
	for name, operations := range map[string][]porcupine.Operation{
		"a lost write": {
			created,
			at(2, 3, Request{Kind: Put, Value: "b"}, Answer{Outcome: Done}),
			at(4, 5, Request{Kind: Read}, Answer{Done, "a"}),
		},
		"a stale read": {
			created,
			at(2, 3, Request{Kind: Put, Value: "b"}, Answer{Outcome: Done}),
			at(4, 5, Request{Kind: Read}, Answer{Done, "b"}),
			at(6, 7, Request{Kind: Read}, Answer{Done, "a"}),
		},
		"two swaps of one value": {
			created,
			at(2, 5, Request{Swap, "b", "a"}, Answer{Outcome: Done}),
			at(3, 6, Request{Swap, "c", "a"}, Answer{Outcome: Done}),
		},
		"a value from nowhere":  {created, at(2, 3, Request{Kind: Read}, Answer{Done, "z"})},
		"a refused write shows": {created, at(2, 3, Request{Kind: Put, Value: "b"}, Answer{Outcome: Refused}), at(4, 5, Request{Kind: Read}, Answer{Done, "b"})},
		"an effect before its call": {
			created,
			at(2, 3, Request{Kind: Read}, Answer{Done, "b"}),
			at(4, 1<<62, Request{Kind: Put, Value: "b"}, Answer{Outcome: Unknown}),
		},
		"an effect that comes and goes": {
			created,
			at(2, 1<<62, Request{Kind: Put, Value: "b"}, Answer{Outcome: Unknown}),
			at(3, 4, Request{Kind: Read}, Answer{Done, "b"}),
			at(5, 6, Request{Kind: Read}, Answer{Done, "a"}),
		},
	} {
		h := History{objects: map[string][]porcupine.Operation{"x": operations}}
		err := h.Check(time.Minute, t.TempDir())
		if err == nil || !strings.Contains(err.Error(), "no order of the") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnknownWrites: a write without an answer may show at once, later, or never.
func TestUnknownWrites(t *testing.T) {
	created := at(0, 1, Request{Kind: Create, Value: "a"}, Answer{Outcome: Done})
	write := at(2, 1<<62, Request{Kind: Put, Value: "b"}, Answer{Outcome: Unknown})
	for _, seen := range [][]string{{"b", "b"}, {"a", "b"}, {"a", "a"}} {
		operations := []porcupine.Operation{created, write}
		for i, value := range seen {
			operations = append(operations, at(int64(10+2*i), int64(11+2*i), Request{Kind: Read}, Answer{Done, value}))
		}
		h := History{objects: map[string][]porcupine.Operation{"x": operations}}
		if err := h.Check(time.Minute, t.TempDir()); err != nil {
			t.Errorf("%v: %v", seen, err)
		}
	}
}

// TestManyUnknownWrites: a history with hundreds of writes without an answer is checked in time, also if some explain what others saw.
func TestManyUnknownWrites(t *testing.T) {
	operations := []porcupine.Operation{at(0, 1, Request{Kind: Create, Value: "a"}, Answer{Outcome: Done})}
	for i := range 500 {
		operations = append(operations, at(int64(2+i), 1<<62, Request{Kind: Put, Value: fmt.Sprint(i)}, Answer{Outcome: Unknown}))
	}
	operations = append(operations, at(1000, 1001, Request{Kind: Read}, Answer{Done, "7"}), at(1002, 1003, Request{Kind: Read}, Answer{Done, "400"}))
	h := History{objects: map[string][]porcupine.Operation{"x": operations}}
	if err := h.Check(10*time.Second, t.TempDir()); err != nil {
		t.Error(err)
	}
	// Only a write without an answer explains a refusal.
	h.objects["y"] = append(operations[:4:4], at(1000, 1001, Request{Swap, "b", "a"}, Answer{Outcome: Refused}))
	if err := h.Check(10*time.Second, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestHistory: the times of a request enclose its effect.
func TestHistory(t *testing.T) {
	var h History
	h.Do(3, "x", Request{Kind: Create, Value: "a"}, func() Answer { return Answer{Outcome: Done} })
	h.Do(3, "x", Request{Kind: Read}, func() Answer { return Answer{Outcome: Unknown} })
	h.Do(3, "x", Request{Kind: Delete}, func() Answer { return Answer{Outcome: Unsent} })
	var got []Request
	for _, o := range h.objects["x"] {
		got = append(got, o.Input.(Request))
		if o.Call >= o.Return || o.ClientId != 3 {
			t.Errorf("%+v", o)
		}
	}
	if diff := cmp.Diff([]Request{{Kind: Create, Value: "a"}}, got); diff != "" {
		t.Error(diff)
	}
}
