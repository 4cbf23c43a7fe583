import lock_constraints as lock


def test_what_they_differ_in_has_markers():
    versions = {(3, 10): {"a": "1"}, (3, 11): {"a": "2"}, (3, 12): {"a": "3"}, (3, 13): {"a": "3"}}
    assert lock.merge(versions) == [
        'a==1 ; python_version < "3.11"',
        'a==2 ; python_version >= "3.11" and python_version < "3.12"',
        'a==3 ; python_version >= "3.12"',
    ]


def test_a_package_that_only_some_need_and_a_version_that_comes_back():
    assert lock.merge({(3, 10): {"tomli": "2"}, (3, 11): {}}) == ['tomli==2 ; python_version < "3.11"']
    assert lock.merge({(3, 10): {"a": "1"}, (3, 11): {"a": "2"}, (3, 12): {"a": "1"}}) == [
        'a==1 ; python_version < "3.11"',
        'a==1 ; python_version >= "3.12"',
        'a==2 ; python_version >= "3.11" and python_version < "3.12"',
    ]


def test_torchs_cuda_packages_are_left_out():
    needs = ["filelock", "nvidia-cudnn-cu13==9", "cuda-toolkit[cublas]==13", "triton==3.7.1; x", 'optree; extra == "o"']
    torch = [{"metadata": {"requires_dist": needs}}]
    assert lock._plain_needs(torch) == ["filelock"]


def test_the_projects_needs_come_without_the_frameworks():
    needs = lock._project_needs()
    assert any(need.startswith("numpy") for need in needs)
    assert any(need.startswith("scikit-learn") for need in needs)
    assert any(need.startswith("paddle2onnx") for need in needs)
    assert not any(need.startswith(("torch", "paddlepaddle")) for need in needs)
