// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// text returns a threshold as a short text.
func text(t Threshold) string {
	show := func(v Value) string {
		if v.Quantity != nil {
			return v.Quantity.String()
		}
		return fmt.Sprintf("%.4g%%", v.Share*100)
	}
	s := string(t.Signal) + "<" + show(t.Value)
	if t.Grace > 0 {
		s += " for " + t.Grace.String()
	}
	if t.MinReclaim != nil {
		s += " reclaim " + show(*t.MinReclaim)
	}
	return s
}

func texts(thresholds []Threshold) []string {
	var list []string
	for _, t := range thresholds {
		list = append(list, text(t))
	}
	return list
}

type m = map[string]string

func TestParse(t *testing.T) {
	c, err := Parse(&kubeletv1beta1.KubeletConfiguration{
		EvictionHard:            m{"nodefs.available": "5%", "memory.available": "100Mi", "imagefs.available": "0%", "pid.available": "100%"},
		EvictionSoft:            m{"memory.available": "300Mi"},
		EvictionSoftGracePeriod: m{"memory.available": "1m30s", "nodefs.available": "1s"},
		EvictionMinimumReclaim:  m{"memory.available": "0", "nodefs.available": "10%"},
		EnforceNodeAllocatable:  []string{"pods"}, EvictionMaxPodGracePeriod: 60,
		EvictionPressureTransitionPeriod: metav1.Duration{Duration: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"memory.available<100Mi reclaim 0", "memory.available<300Mi for 1m30s reclaim 0",
		"allocatableMemory.available<100Mi reclaim 0", "nodefs.available<5% reclaim 10%",
	}
	if diff := cmp.Diff(want, texts(c.Thresholds)); diff != "" {
		t.Errorf("thresholds (-want +got):\n%s", diff)
	}
	if c.Transition != time.Minute || c.MaxPodGraceSeconds != 60 || !c.LocalLimits {
		t.Errorf("got %+v", c)
	}
}

// Each mistake names its field.
func TestParseErrors(t *testing.T) {
	type config = kubeletv1beta1.KubeletConfiguration
	for want, c := range map[string]config{
		`evictionHard has "memory", which is no eviction signal: use one of memory.available, `:                         {EvictionHard: m{"memory": "1"}},
		`evictionHard[memory.available] is "much", and must be a positive quantity such as 100Mi`:                       {EvictionHard: m{"memory.available": "much"}},
		`evictionHard[memory.available] is "0", and must be a positive`:                                                 {EvictionHard: m{"memory.available": "0"}},
		`evictionHard[memory.available] is "-1Mi", and`:                                                                 {EvictionHard: m{"memory.available": "-1Mi"}},
		`evictionHard[nodefs.available] is "101%", and`:                                                                 {EvictionHard: m{"nodefs.available": "101%"}},
		`evictionHard[nodefs.available] is "x%", and`:                                                                   {EvictionHard: m{"nodefs.available": "x%"}},
		`evictionSoft has memory.available, and evictionSoftGracePeriod must have it as well`:                           {EvictionSoft: m{"memory.available": "1Gi"}},
		`evictionSoftGracePeriod[memory.available] is "soon", and must be a duration such as 1m30s`:                     {EvictionSoft: m{"memory.available": "1Gi"}, EvictionSoftGracePeriod: m{"memory.available": "soon"}},
		`evictionSoftGracePeriod[memory.available] is "-1s"`:                                                            {EvictionSoftGracePeriod: m{"memory.available": "-1s"}},
		`evictionSoftGracePeriod has "x", which is no eviction signal`:                                                  {EvictionSoftGracePeriod: m{"x": "1s"}},
		`evictionMinimumReclaim[memory.available] is "-5%", and must be a quantity such as 500Mi, or a share such as 5`: {EvictionMinimumReclaim: m{"memory.available": "-5%"}},
		`evictionMinimumReclaim[memory.available] is "-5"`:                                                              {EvictionMinimumReclaim: m{"memory.available": "-5"}},
		`evictionMinimumReclaim has "y", which is no eviction signal`:                                                   {EvictionMinimumReclaim: m{"y": "1"}},
		`evictionPressureTransitionPeriod is -1s, and must be positive`:                                                 {EvictionPressureTransitionPeriod: metav1.Duration{Duration: -time.Second}},
	} {
		if _, err := Parse(&c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// The thresholds of containerfs are those of the file system that has the writable layers.
func TestAdapt(t *testing.T) {
	c, err := Parse(&kubeletv1beta1.KubeletConfiguration{
		EvictionHard: m{"nodefs.available": "5%", "imagefs.available": "7%", "nodefs.inodesFree": "1%", "containerfs.available": "50%"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for l, want := range map[Layout][]string{
		OneFs:   {"nodefs.available<5%", "nodefs.inodesFree<1%", "imagefs.available<7%", "containerfs.available<5%", "containerfs.inodesFree<1%"},
		ImageFs: {"nodefs.available<5%", "nodefs.inodesFree<1%", "imagefs.available<7%", "containerfs.available<7%"},
		SplitFs: {"nodefs.available<5%", "nodefs.inodesFree<1%", "imagefs.available<7%", "containerfs.available<5%", "containerfs.inodesFree<1%"},
	} {
		if diff := cmp.Diff(want, texts(l.adapt(c.Thresholds))); diff != "" {
			t.Errorf("layout %d (-want +got):\n%s", l, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available", "5%")
	f.Fuzz(func(t *testing.T, signal, value string) {
		c, err := Parse(&kubeletv1beta1.KubeletConfiguration{EvictionHard: m{signal: value}})
		if err != nil {
			return
		}
		for _, threshold := range c.Thresholds {
			if least := threshold.Value.Of(binary(1 << 30)); least.Sign() < 0 {
				t.Errorf("%s: %q is %s", signal, value, least.String())
			}
		}
	})
}
