// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/source"
)

// Decode decodes the pods of a manifest, and calls complete with each pod before it validates it.
type Decode func(text []byte, complete func(*v1.Pod) error) ([]*v1.Pod, error)

// origin is where a manifest is from.
type origin struct {
	node string
	from string // source.File or source.HTTP
	at   string // the file or the URL
}

// complete gives a pod what static pods have: their name, UID, node and annotations, as a kubelet does.
func (o origin) complete(p *v1.Pod) error {
	delete(p.Annotations, source.MirrorAnnotation)
	delete(p.Annotations, source.Annotation)
	delete(p.Annotations, source.SeenAnnotation)
	if p.UID == "" {
		uid, err := o.uid(p)
		if err != nil {
			return err
		}
		p.UID = uid
	}
	// Directories have the name of the UID.
	if uid := string(p.UID); uid != filepath.Base(uid) || uid == "." || uid == ".." {
		return fmt.Errorf("invalid pod: metadata.uid %q cannot be the name of a directory", p.UID)
	}
	p.Name += "-" + strings.ToLower(o.node)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.ResourceVersion, p.Generation, p.DeletionTimestamp, p.DeletionGracePeriodSeconds = "", 0, nil, nil
	p.Spec.NodeName = o.node
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[source.HashAnnotation] = string(p.UID)
	p.Annotations[source.Annotation] = o.from
	if o.from == source.File {
		tolerateNoExecute(p)
	}
	return nil
}

// uid returns a UID that is the same for the same manifest of the same source.
func (o origin) uid(p *v1.Pod) (types.UID, error) {
	hash := fnv.New128a()
	if err := json.NewEncoder(hash).Encode(map[string]any{"metadata": p.ObjectMeta, "spec": p.Spec}); err != nil {
		return "", err
	}
	if o.from == source.File {
		_, _ = fmt.Fprintf(hash, "host:%s", o.node)
	}
	_, _ = fmt.Fprintf(hash, "%s:%s", o.from, o.at)
	return types.UID(hex.EncodeToString(hash.Sum(nil))), nil
}

// tolerateNoExecute keeps taints from evicting a pod that only its file can remove.
func tolerateNoExecute(p *v1.Pod) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for i := range p.Spec.Tolerations {
		if p.Spec.Tolerations[i].MatchToleration(&all) {
			return
		}
	}
	p.Spec.Tolerations = append(p.Spec.Tolerations, all)
}

// fullName is the name by which the API and users know a pod. No two static pods have the same one.
type fullName struct{ namespace, name string }

func nameOf(p *v1.Pod) fullName { return fullName{p.Namespace, p.Name} }

func (n fullName) String() string { return n.namespace + "/" + n.name }

func compareNames(a, b fullName) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}
