// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Unix(1e9, 0)

func user(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func elsewhere(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name}}
}

func using(users ...*corev1.Pod) func(*place) { return func(p *place) { p.users = users } }

func attached(p *place) {
	p.attachment = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}
}

func pending(p *place) { p.attachment = &storagev1.VolumeAttachment{} }

func failing(p *place) {
	p.attachment = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no room"}}}
}

func deleting(p *place) { attached(p); p.deleting = true }
func listed(p *place)   { p.listed = true }
func inUse(p *place)    { p.inUse = true }
func lost(p *place)     { p.lost = true }
func shutDown(p *place) { p.lost, p.outOfService = true, true }

func since(ago time.Duration) func(*place) {
	return func(p *place) { p.memory.unneeded = now.Add(-ago) }
}

func at(node string, change ...func(*place)) place {
	p := place{node: node, persistentVolume: "v", memory: &seen{unneeded: now}}
	for _, f := range change {
		f(&p)
	}
	return p
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		places   []place
		shared   bool
		want     []step
		problems []string
		after    time.Duration
	}{
		"needed":                            {places: []place{at("a", using(user("p")))}, want: []step{attach}},
		"being attached":                    {places: []place{at("a", using(user("p")), pending)}, want: []step{stay}},
		"attached":                          {places: []place{at("a", using(user("p")), attached)}, want: []step{list}},
		"attached and listed":               {places: []place{at("a", using(user("p")), attached, listed, inUse)}, want: []step{stay}},
		"cannot be attached":                {places: []place{at("a", using(user("p")), failing)}, want: []step{stay}, problems: []string{`AttachVolume.Attach failed for volume "v" : no room`}},
		"not needed":                        {places: []place{at("a", attached, listed)}, want: []step{detach}},
		"not needed, never attached":        {places: []place{at("a", failing)}, want: []step{detach}},
		"not needed, still in use":          {places: []place{at("a", attached, listed, inUse)}, want: []step{stay}},
		"not needed, in use long":           {places: []place{at("a", attached, listed, inUse, since(time.Hour))}, want: []step{stay}},
		"node lost":                         {places: []place{at("a", attached, listed, inUse, lost, since(time.Minute))}, want: []step{stay}, after: 5*time.Minute + time.Second},
		"node lost long ago":                {places: []place{at("a", attached, listed, inUse, lost, since(7*time.Minute))}, want: []step{detach}},
		"node out of service":               {places: []place{at("a", attached, listed, inUse, shutDown)}, want: []step{detach}},
		"node out of service, still needed": {places: []place{at("a", using(user("p")), attached, listed, inUse, shutDown)}, want: []step{stay}},
		"being detached":                    {places: []place{at("a", deleting)}, want: []step{stay}},
		"being detached, needed again":      {places: []place{at("a", using(user("p")), deleting)}, want: []step{stay}},
		"being detached, but listed":        {places: []place{at("a", using(user("p")), deleting, listed)}, want: []step{unlist}},
		"listed without an attachment":      {places: []place{at("a", listed)}, want: []step{unlist}},
		"needed, listed without attachment": {places: []place{at("a", using(user("p")), listed)}, want: []step{unlist}},
		"needed on two nodes":               {places: []place{at("a", using(user("p"))), at("b", using(user("q")))}, want: []step{attach, stay}, problems: []string{"", `Waiting for detach for volume "v" Volume is already used by pod(s) p`}},
		"needed on two nodes, shared":       {places: []place{at("a", using(user("p"))), at("b", using(user("q")))}, shared: true, want: []step{attach, attach}},
		"attached to another node":          {places: []place{at("a", attached, inUse), at("b", using(user("q")))}, want: []step{stay, stay}, problems: []string{"", `Waiting for detach for volume "v" Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node`}},
		"being detached from another":       {places: []place{at("a", deleting), at("b", using(user("q")))}, want: []step{stay, stay}, problems: []string{"", `Waiting for detach for volume "v" Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node`}},
		"another node uses it, shared":      {places: []place{at("a", using(user("p")), attached, listed), at("b", using(user("q")))}, shared: true, want: []step{stay, attach}},
		"pods of other namespaces use it":   {places: []place{at("a", using(elsewhere("x"), elsewhere("y")), attached, listed), at("b", using(user("q")))}, want: []step{stay, stay}, problems: []string{"", `Waiting for detach for volume "v" Volume is already used by 2 pod(s) in different namespaces`}},
		"pods of several namespaces":        {places: []place{at("a", using(elsewhere("x"), user("p")), attached, listed), at("b", using(user("q")))}, want: []step{stay, stay}, problems: []string{"", `Waiting for detach for volume "v" Volume is already used by pod(s) p and 1 pod(s) in different namespaces`}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, d := range plan(c.places, !c.shared, now) {
				problem, want := "", ""
				if d.problem != nil {
					problem = d.problem(c.places[i].users[0])
				}
				if i < len(c.problems) {
					want = c.problems[i]
				}
				if d.step != c.want[i] || problem != want || d.after != c.after {
					t.Errorf("place %d: step %d, problem %q, after %v, want %d, %q, %v", i, d.step, problem, d.after, c.want[i], want, c.after)
				}
			}
		})
	}
}
