// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Annotations of a Deployment's ReplicaSets, which kubectl rollout reads.
const (
	// revisionAnnotation numbers the templates in the order of their use. The
	// Deployment has the number of the newest.
	revisionAnnotation = "deployment.kubernetes.io/revision"
	// historyAnnotation lists the former numbers of a template that was used
	// several times.
	historyAnnotation = "deployment.kubernetes.io/revision-history"
	// desiredAnnotation and maxAnnotation are the Deployment's size and ceiling when
	// the ReplicaSet was last resized. They distinguish scaling from a rollout.
	desiredAnnotation = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation     = "deployment.kubernetes.io/max-replicas"
)

// maxHistory limits historyAnnotation, in characters.
const maxHistory = 2000

// ownAnnotations are not copied between a Deployment and its ReplicaSets.
var ownAnnotations = []string{
	corev1.LastAppliedConfigAnnotation,
	revisionAnnotation,
	historyAnnotation,
	desiredAnnotation,
	maxAnnotation,
	appsv1.DeprecatedRollbackTo,
	ownership.HoldAnnotation,
}

// revision returns the number of a ReplicaSet's template, or 0 if it has none.
func revision(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func maxRevision(sets []*appsv1.ReplicaSet) (highest int64) {
	for _, rs := range sets {
		highest = max(highest, revision(rs))
	}
	return highest
}

func byRevision(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(cmp.Compare(revision(a), revision(b)), byAge(a, b))
}

// annotateNewest gives rs a higher number than those of old, unless its annotation is not a
// number, and copies the Deployment's annotations to it, such as kubernetes.io/change-cause,
// which kubectl rollout history shows. It reports whether anything changed.
func annotateNewest(rs *appsv1.ReplicaSet, d *appsv1.Deployment, old []*appsv1.ReplicaSet) (changed bool) {
	for key, value := range d.Annotations {
		if !slices.Contains(ownAnnotations, key) {
			changed = annotate(rs, key, value) || changed
		}
	}
	// If old sets were cleaned up, the number may be higher than necessary.
	number := maxRevision(old) + 1
	before, numbered := rs.Annotations[revisionAnnotation]
	if numbered && before != "" {
		if _, err := strconv.ParseInt(before, 10, 64); err != nil {
			return changed
		}
	}
	if revision(rs) >= number {
		return changed
	}
	if numbered {
		annotate(rs, historyAnnotation, appendHistory(rs.Annotations[historyAnnotation], before))
	}
	return annotate(rs, revisionAnnotation, strconv.FormatInt(number, 10)) || changed
}

// appendHistory appends a number to the history, and drops the oldest ones that do not fit.
func appendHistory(history, number string) string {
	if history == "" {
		return number
	}
	history += "," + number
	for len(history) > maxHistory {
		_, rest, found := strings.Cut(history, ",")
		if !found {
			break
		}
		history = rest
	}
	return history
}

// annotateSize records the Deployment's size and ceiling. It reports whether they changed.
func annotateSize(rs *appsv1.ReplicaSet, l limits) (changed bool) {
	changed = annotate(rs, desiredAnnotation, strconv.Itoa(int(l.want)))
	return annotate(rs, maxAnnotation, strconv.Itoa(int(l.ceiling()))) || changed
}

// sizeAnnotation returns the number in an annotation of annotateSize, and whether it is
// valid.
func sizeAnnotation(rs *appsv1.ReplicaSet, key string) (int32, bool) {
	n, err := strconv.ParseUint(rs.Annotations[key], 10, 31)
	return int32(n), err == nil
}

func annotate(rs *appsv1.ReplicaSet, key, value string) (changed bool) {
	if current, exists := rs.Annotations[key]; exists && current == value {
		return false
	}
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	rs.Annotations[key] = value
	return true
}
