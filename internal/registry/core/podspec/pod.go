// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodCreate checks a pod that is to be created.
func ValidatePodCreate(pod *v1.Pod) field.ErrorList {
	c, path := &checker{}, field.NewPath("spec")
	c.pod(pod)
	if len(pod.Spec.EphemeralContainers) > 0 {
		c.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		c.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	c.profilesMatch(pod.Annotations, &pod.Spec, path)
	return c.Errors()
}

// pod checks the rules that hold on create and on every update.
func (c *checker) pod(pod *v1.Pod) {
	metaPath, specPath := field.NewPath("metadata"), field.NewPath("spec")
	c.metadata(&pod.ObjectMeta, metaPath)
	c.annotations(pod.Annotations, &pod.Spec, metaPath.Child("annotations"))
	c.Add(checkSpec(&pod.Spec, &pod.ObjectMeta, specPath)...)
	c.onlyOfPods(&pod.Spec, specPath)
}

// onlyOfPods are rules that templates, for history's sake, need not keep.
func (c *checker) onlyOfPods(spec *v1.PodSpec, path *field.Path) {
	if spec.ServiceAccountName == "" {
		c.noTokens(spec.Volumes, path.Child("volumes"))
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		c.NonNegative(path.Child("terminationGracePeriodSeconds"), *grace)
	}
	for i := range spec.Containers {
		c.trimmedImage(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		c.trimmedImage(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
}

// noTokens: without a service account there is nobody to have a token of.
func (c *checker) noTokens(volumes []v1.Volume, path *field.Path) {
	for i, volume := range volumes {
		if volume.Projected == nil {
			continue
		}
		for j, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				c.Forbidden(path.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
}

func (c *checker) metadata(meta *metav1.ObjectMeta, path *field.Path) {
	c.Add(apivalidation.ValidateObjectMeta(meta, true, apivalidation.NameIsDNSSubdomain, path)...)
	c.finalizers(meta.Finalizers, path.Child("finalizers"))
}

func (c *checker) metadataUpdate(meta, old *metav1.ObjectMeta, path *field.Path) {
	c.Add(apivalidation.ValidateObjectMetaUpdate(meta, old, path)...)
	c.finalizers(meta.Finalizers, path.Child("finalizers"))
}

// ValidatePodTemplateSpec checks a template at path, as it is created and after
// an update.
func ValidatePodTemplateSpec(template *v1.PodTemplateSpec, path *field.Path) field.ErrorList {
	c := &checker{}
	c.template(template, path)
	return c.Errors()
}

func (c *checker) template(template *v1.PodTemplateSpec, path *field.Path) {
	specPath := path.Child("spec")
	c.templateLabels(template, path)
	c.Add(checkSpec(&template.Spec, nil, specPath)...)
	c.profilesMatch(template.Annotations, &template.Spec, specPath)
	if len(template.Spec.EphemeralContainers) > 0 {
		c.Forbidden(specPath.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
}

// ValidatePodTemplateMeta checks the labels and annotations of a template.
func ValidatePodTemplateMeta(template *v1.PodTemplateSpec, path *field.Path) field.ErrorList {
	c := &checker{}
	c.templateLabels(template, path)
	return c.Errors()
}

func (c *checker) templateLabels(template *v1.PodTemplateSpec, path *field.Path) {
	annotations := path.Child("annotations")
	c.Labels(path.Child("labels"), template.Labels)
	c.Add(apivalidation.ValidateAnnotations(template.Annotations, annotations)...)
	c.annotations(template.Annotations, &template.Spec, annotations)
}

// ValidatePodTemplate checks the object of kind PodTemplate.
func ValidatePodTemplate(template *v1.PodTemplate) field.ErrorList {
	c := &checker{}
	c.metadata(&template.ObjectMeta, field.NewPath("metadata"))
	c.template(&template.Template, field.NewPath("template"))
	return c.Errors()
}

// ValidatePodTemplateUpdate checks the object of kind PodTemplate; all of the
// template may change.
func ValidatePodTemplateUpdate(template, old *v1.PodTemplate) field.ErrorList {
	c := &checker{}
	c.metadataUpdate(&template.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	c.template(&template.Template, field.NewPath("template"))
	return c.Errors()
}

// ValidatePodBinding checks the assignment of a pod to a node.
func ValidatePodBinding(binding *v1.Binding) field.ErrorList {
	c := &checker{}
	path, target := field.NewPath("target"), binding.Target
	isNode := target.Kind == "" || target.Kind == "Node"
	if !isNode {
		c.Add(field.NotSupported(path.Child("kind"), target.Kind, []string{"Node", "<empty>"}))
	}
	if c.NonEmpty(path.Child("name"), target.Name) && isNode {
		c.DNSSubdomain(path.Child("name"), target.Name)
	}
	return c.Errors()
}
