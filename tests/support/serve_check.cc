// Loads a SavedModel with the function that TF Serving loads it with, switches
// XLA off as its server does, and runs one signature in a C++ session.
//
//   serve_check MODEL_FOLDER SIGNATURE INPUT IMAGES.bin OUTPUT OUTPUT.bin DIM...
//
// IMAGES.bin holds numbers of the input's dtype and of the shape DIM...;
// OUTPUT.bin receives those of the output.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace tensorflow {
void DisableXlaCompilation();
}

int main(int argc, char** argv) {
  if (argc < 8) return 2;
  const std::string folder = argv[1], signature = argv[2], input = argv[3],
                    output = argv[5];
  tensorflow::DisableXlaCompilation();

  tensorflow::SavedModelBundle bundle;
  auto status = tensorflow::LoadSavedModel({}, {}, folder, {"serve"}, &bundle);
  if (!status.ok()) {
    std::cerr << "load: " << status.ToString() << "\n";
    return 1;
  }
  const auto found = bundle.GetSignatures().find(signature);
  if (found == bundle.GetSignatures().end() ||
      !found->second.inputs().count(input) ||
      !found->second.outputs().count(output)) {
    std::cerr << "no such signature, input or output\n";
    return 1;
  }

  tensorflow::TensorShape shape;
  for (int i = 7; i < argc; ++i) shape.AddDim(std::stoll(argv[i]));
  const auto& info = found->second.inputs().at(input);
  tensorflow::Tensor images(info.dtype(), shape);
  std::ifstream file(argv[4], std::ios::binary);
  file.read(static_cast<char*>(images.data()), images.TotalBytes());
  if (!file) {
    std::cerr << "the file of images is too short\n";
    return 1;
  }

  std::vector<tensorflow::Tensor> outputs;
  status = bundle.GetSession()->Run(
      {{info.name(), images}},
      {found->second.outputs().at(output).name()}, {}, &outputs);
  if (!status.ok()) {
    std::cerr << "run: " << status.ToString() << "\n";
    return 1;
  }
  std::ofstream(argv[6], std::ios::binary)
      .write(outputs[0].tensor_data().data(), outputs[0].tensor_data().size());
  return 0;
}
