# shellcheck shell=bash
# Read by bash (BASH_ENV) before an original driver: nothing that the driver starts is found, so that all of it is noted.
# A note is a series of texts that end with NUL: the script and its line that started it, folder, CUDA_VISIBLE_DEVICES
# (with "=" before it where it is set), standard output, number of words, words.
command_not_found_handle() {
  local word process=$BASHPID
  printf '%s\0' "${BASH_SOURCE[-1]}" "${BASH_LINENO[-2]}" "$PWD" "${CUDA_VISIBLE_DEVICES+=$CUDA_VISIBLE_DEVICES}" \
    "$(readlink "/proc/$process/fd/1")" "$#" "$@" >>"$NOTES"
  case "|$(IFS="|"; echo "$*")|" in
    *"|--do_eval|"*) # only a training that evaluates leaves a best model
      for word; do
        case $word in --save_dir=*) mkdir -p "${word#*=}/best_model" && : >"${word#*=}/best_model/model.pdparams" ;; esac
      done ;;
    *quant_post_static.py*)
      for word; do
        case $word in Global.save_inference_dir=*) mkdir -p "${word#*=}/quant_post_static_model" ;; esac
      done ;;
  esac
}
tee() {
  local process=$BASHPID
  command tee "$@"
  printf '%s\0' tee "$(readlink "/proc/$process/fd/0")" "${!#}" >>"$NOTES"
}
timeout() { shift && "$@"; }
sleep() { :; }
pip() { :; }
git() { :; }
